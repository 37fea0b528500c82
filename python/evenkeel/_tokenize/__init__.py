"""Text to token files, on all cores or in parts on many machines; `evenkeel.tokenize`."""
