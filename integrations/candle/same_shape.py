#!/usr/bin/env python3
"""The GPT of this folder in eager PyTorch, for scale: the same sizes, text, optimizer and precision, and the same way to time a step.

    python3 integrations/candle/same_shape.py --device cuda --steps 100

Prints one JSON object with the keys of `candle-gpt --json`. The first parameters are random in PyTorch's own way, so losses are of the
same size as candle's and not the same.
"""

import argparse
import json
import math
import pathlib
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256
DOCUMENTS = ["README.md"] + [
    f"docs/{name}.md" for name in ("attribute", "driver", "findings", "fit", "replay", "summary", "torch", "waste")
]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_output = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def attention(self, inputs, mask):
        batch, length, width = inputs.shape
        all_three = self.query_key_value(inputs).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = all_three.permute(2, 0, 3, 1, 4).contiguous()
        # In basic operations, as in candle: no fused attention.
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // self.heads) + mask[:length, :length]
        seen = torch.softmax(scores, -1) @ value
        return self.attention_output(seen.transpose(1, 2).reshape(batch, length, width))

    def forward(self, stream, mask):
        stream = stream + self.attention(self.attention_norm(stream), mask)
        fed = functional.gelu(self.widen(self.feed_forward_norm(stream)), approximate="tanh")
        return stream + self.narrow(fed)


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, context):
        super().__init__()
        self.token_embedding = nn.Embedding(VOCABULARY, width)
        self.position_embedding = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY)
        self.register_buffer("mask", torch.full((context, context), -math.inf).triu(1))
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                residual = name.endswith(("attention_output.weight", "narrow.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, tokens):
        stream = self.token_embedding(tokens) + self.position_embedding.weight[: tokens.shape[1]]
        for block in self.blocks:
            stream = block(stream, self.mask)
        return self.head(self.norm(stream))


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    for name, default in (
        ("steps", 100),
        ("batch-size", 16),
        ("context", 256),
        ("layers", 6),
        ("width", 384),
        ("heads", 6),
        ("seed", 0),
        ("warm-up", 5),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--learning-rate", type=float, default=0.0005)
    return parser.parse_args()


def main():
    chosen = options()
    torch.manual_seed(chosen.seed)
    # fp32 throughout: no TF32.
    torch.backends.cuda.matmul.allow_tf32 = False
    root = pathlib.Path(__file__).resolve().parents[2]
    text = torch.frombuffer(bytearray(b"".join((root / name).read_bytes() for name in DOCUMENTS)), dtype=torch.uint8)
    model = Gpt(chosen.layers, chosen.width, chosen.heads, chosen.context).to(chosen.device)
    adam = torch.optim.AdamW(model.parameters(), lr=chosen.learning_rate, weight_decay=0.01)
    losses, times = [], []
    for _ in range(chosen.steps):
        begin = time.perf_counter()
        places = torch.randint(len(text) - chosen.context, (chosen.batch_size,)).tolist()
        pieces = torch.stack([text[place : place + chosen.context + 1] for place in places]).long()
        tokens, targets = pieces[:, :-1].to(chosen.device), pieces[:, 1:].to(chosen.device)
        loss = functional.cross_entropy(model(tokens).view(-1, VOCABULARY), targets.reshape(-1))
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        losses.append(loss.item())  # Waits for the device.
        times.append((time.perf_counter() - begin) * 1e3)
    counted = sorted(times[chosen.warm_up :])
    report = {
        "device": chosen.device,
        "torch": torch.__version__,
        "steps": chosen.steps,
        "batch_size": chosen.batch_size,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "step_ms": {
            "median": statistics.median(counted),
            "p10": counted[round(0.1 * (len(counted) - 1))],
            "p90": counted[round(0.9 * (len(counted) - 1))],
        },
        "losses": losses,
    }
    if chosen.device.startswith("cuda"):
        report["allocated_peak_bytes"] = torch.cuda.max_memory_allocated()
        report["reserved_peak_bytes"] = torch.cuda.max_memory_reserved()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
