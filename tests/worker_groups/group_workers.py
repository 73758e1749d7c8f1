"""Small workers for the tests of worker groups."""

import os

import torch

from rlhf_runtime.api import BaseWorker, DataProto, Dispatch, Effect, register


class ActorRolloutWorker(BaseWorker):
    """A linear policy: tokens are numbers, weights move by what the update is given."""

    def __init__(self, hidden: int = 8, size: int = 4) -> None:
        torch.manual_seed(self.context.seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(size, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, size))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    @register(effect=Effect.READ)
    def generate_sequences(self, batch: DataProto) -> DataProto:
        with torch.no_grad():
            responses = self.model(batch.batch["prompts"])
        uid = [f"{self.context.rank}/{row}" for row in range(len(batch))]
        return DataProto.from_dict(
            {"responses": responses}, {"uid": uid}, {"rank": self.context.rank, "stops": [1, 2, 3]}
        )

    @register(effect=Effect.READ)
    def compute_log_prob(self, batch: DataProto) -> DataProto:
        with torch.no_grad():
            return DataProto.from_dict({"log_probs": -(self.model(batch.batch["prompts"]) ** 2).sum(dim=1)})

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update_actor(self, batch: DataProto) -> DataProto:
        loss = (self.model(batch.batch["prompts"]).sum(dim=1) * batch.batch["values"]).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return DataProto.from_dict(meta_info={"loss": float(loss)})

    @register(effect=Effect.READ)
    def seen_meta(self, batch: DataProto) -> dict:
        return {"seen": {"meta": batch.meta_info, "columns": sorted(batch.columns)}}

    def weights(self) -> dict:
        return {"weights": torch.cat([p.detach().flatten() for p in self.model.parameters()])}

    def state_dict(self) -> dict:
        return self.model.state_dict()

    def load_state_dict(self, state: dict) -> None:
        self.model.load_state_dict(state)


class CriticWorker(BaseWorker):
    def __init__(self, scale: float = 0.5) -> None:
        self.scale = scale

    @register(effect=Effect.READ)
    def compute_values(self, batch: DataProto) -> DataProto:
        return DataProto.from_dict({"values": batch.batch["responses"].sum(dim=1) * self.scale})


class ReferencePolicyWorker(BaseWorker):
    @register(effect=Effect.READ)
    def compute_ref_log_prob(self, batch: DataProto) -> DataProto:
        return DataProto.from_dict({"ref_log_prob": -batch.batch["responses"].abs().sum(dim=1)})


class PlaceWorker(BaseWorker):
    """Tells where it is; a plain class in all else."""

    def whereabouts(self) -> dict:
        return {"rank": self.context.rank, "pid": os.getpid()}

    def add(self, a: int, b: int = 10) -> int:
        return a + b + self.context.rank

    def update_nothing(self) -> None:
        pass


def prompts(rows: int = 6, size: int = 4) -> DataProto:
    values = torch.linspace(-1.0, 1.0, rows * size).reshape(rows, size)
    return DataProto.from_dict({"prompts": values}, meta_info={"temperature": 0.5, "eos": [7, 8]})
