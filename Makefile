# The main commands. Each target first installs missing packages. A second run only rebuilds what has changed.
PREFIX ?= /usr/local
DESTDIR ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-long build bench fuzz lint format wheels wheels-test deb deb-test release-check docs install uninstall clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

demo: build ## build the tool and show what it does: about a minute the first time, on 2 cores
	build/evenkeel demo

test: ## build every preset, run every test
	@scripts/setup build test lint
	@scripts/test

test-long: build ## ten million batches and a hundred epochs of workers, under the profiler; 40 minutes at most
	@scripts/setup build test python
	@scripts/build release long_run
	@scripts/install_package
	@scripts/test_long

build: ## the tool, at build/evenkeel
	@scripts/setup build
	@scripts/build release evenkeel_cli

bench: build ## compare Evenkeel with its peers, with np.memmap and with the disk, and its engines with each other
	@scripts/setup bench python peers
	@scripts/build release evenkeel_cli loader_bench
	bench/run
	@scripts/install_package
	.venv/bin/python bench/python.py
	.venv/bin/python bench/cache.py
	.venv/bin/python bench/guard.py
	@scripts/install_package .venv-peers
	bench/run.py --json .cache/side-by-side.json

fuzz: ## a minute of each fuzz target
	@scripts/setup build fuzz
	@scripts/fuzz 60

lint: ## format, layers, scripts, types, clang-tidy of all files
	@scripts/setup build test lint python
	@scripts/lint

format: ## format the sources
	@scripts/setup lint
	@scripts/format

wheels: ## wheels for each CPython found, the source package and the tool as one program, in dist/
	@scripts/wheels

wheels-test: ## test the result of `make wheels`, without a compiler; as root, may install packages on this machine
	@scripts/test_wheels

deb: ## Debian packages of the tool, the library and its headers, in dist/; checked by lintian
	@scripts/setup build deb
	@scripts/deb

deb-test: ## test the result of `make deb`: install into a folder, use, remove
	@scripts/setup deb
	@scripts/test_deb

release-check: ## check whether the contents of dist/ and build/site can be released
	@made=0; scripts/sbom || made=1; scripts/release_check && exit $$made

docs: ## the documentation site, in build/site; open build/site/index.html
	@scripts/setup docs
	@scripts/docs

install: build ## headers, library, tool and packages, to PREFIX (/usr/local), under DESTDIR
	@scripts/build release evenkeel_share
	DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"
	@cp build/install_manifest.txt build/installed.txt

uninstall: ## remove what `make install` installed (under the same DESTDIR)
	@DESTDIR="$(DESTDIR)" cmake -DMANIFEST="$(CURDIR)/build/installed.txt" -P cmake/uninstall.cmake

clean: ## remove what was built (.venv, .venv-peers and .venv-docs stay)
	rm -rf build build-dev build-tsan build-nouring build-clang build-alone build-fuzz build-pyasan build-cp* dist
