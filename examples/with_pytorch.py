"""CRaC in a plain PyTorch loop, on made-up hearts.

Run: python examples/with_pytorch.py
"""

import torch
from torch.utils.data import DataLoader

import crac
import phantoms

EPOCHS = 10

torch.manual_seed(0)
train, validation = phantoms.hearts(4, seed=0), phantoms.hearts(3, seed=1)
network = phantoms.network()
optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
loss = crac.CRaCLoss(num_classes=4)

for epoch in range(EPOCHS):
    network.train()
    for images, labels in DataLoader(train, batch_size=10, shuffle=True):
        optimiser.zero_grad()
        loss(network(images), labels).backward()
        optimiser.step()
    network.eval()
    with torch.no_grad():
        for images, labels in DataLoader(validation, batch_size=10):
            loss.observe(network(images), labels)
    loss.update_multipliers()
    print(f"epoch {epoch}: weight inside {loss.lambda_[0].mean():.3f}, on boundaries {loss.lambda_[1].mean():.3f}")

print(phantoms.calibration(network, validation))
# The multipliers are part of the state: save both to go on later.
torch.save({"network": network.state_dict(), "loss": loss.state_dict()}, "hearts.pt")
