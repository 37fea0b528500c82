"""A small network in Lightning on rows that need not fit into memory.

    python rows_lightning.py                100,000 rows, with a budget of 16 MiB
    python rows_lightning.py --epochs 5

Lightning takes any iterable with `len` as its data loader, so `evenkeel.Loader` needs no DataLoader
and no workers around it. Its state is saved with each checkpoint, so that a
stopped run continues with the rows that it has not seen.
"""

import sys

import evenkeel
import lightning
import torch
from rows_data import CLASSES, COLUMNS, clouds, opened


class Network(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(COLUMNS, 128), torch.nn.ReLU(), torch.nn.Linear(128, CLASSES)
        )
        self.losses = []

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.layers(batch["x"]), batch["y"])
        self.losses.append(float(loss.detach()))
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class SaveLoader(lightning.Callback):
    """Puts the state of the loader into checkpoints."""

    def __init__(self, loader):
        self.loader = loader

    def state_dict(self):
        return self.loader.state_dict()

    def load_state_dict(self, state):
        self.loader.load_state_dict(state)


def train(x, y, epochs):
    network = Network()
    options = {"order": "blocks", "seed": 1, "device": "cpu"}
    with evenkeel.Loader({"x": x, "y": y}, batch_size=512, **options) as loader:
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            callbacks=[SaveLoader(loader)],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(network, loader)
        steps = len(loader)
    for epoch in range(epochs):
        of_epoch = network.losses[epoch * steps : (epoch + 1) * steps]
        print(f"epoch {epoch}  loss {of_epoch[0]:.3f} to {of_epoch[-1]:.3f}")
    return network.losses


def main():
    with opened(__doc__, clouds) as (arrays, options):
        losses = train(arrays["x"], arrays["y"], options.epochs)
        return 0 if losses[-1] < 0.5 * losses[0] else 1


if __name__ == "__main__":
    sys.exit(main())
