"""Hostile inputs, drawn from a seeded generator. Every engine argument has its turn in every kind."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.trust.canaries import MODULE, VARIABLE, Canaries
from vlmtui.config.settings import EngineSettings
from vlmtui.worker.backends.transformers.loading import Arguments

_KNOWN = Path(__file__).parents[1] / "data" / "vllm_arguments.json"
ARGUMENTS = sorted(
    {name for names in json.loads(_KNOWN.read_bytes()).values() for name in names}
    | {*Arguments.__struct_fields__, *EngineSettings.__struct_fields__, "attn_implementation", "wait_s"}
)
"""Every argument of vLLM 0.23, 0.32 and 0.33, of Transformers and of servers."""
_BACKENDS = ("vllm", "transformers", "served", "pinned", "remote", MODULE, "plugin", "vllm")
_EXTRA = (
    "kv_transfer_params",
    "extra_args",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "model",
    "messages",
    "documents",
)


class Inputs:
    """Draws inputs. `number` chooses the argument."""

    def __init__(self, canaries: Canaries, seed: int) -> None:
        self.canaries = canaries
        self.random = random.Random(seed)

    def argument(self, number: int) -> str:
        return ARGUMENTS[number % len(ARGUMENTS)]

    def value(self) -> Any:
        """Draw what an argument could name."""
        one = self.canaries
        path = str(one.folder / f"{MODULE}.py")
        choices: list[Any] = [
            True, path, str(one.key_file), str(one.model), f"{MODULE}:Thing", f"{MODULE}.Thing", one.address,
            f"env:{VARIABLE}", [f"{MODULE}:Thing"], [path], {"X-A": f"env:{VARIABLE}"}, {"path": path},
            {"auto_map": {"AutoModel": f"{MODULE}.Model"}}, {"kv_connector_module_path": MODULE},
            {"model": str(one.model)}, f"--trust-remote-code --x={path}", 1, "auto",
        ]  # fmt: skip
        return self.random.choice(choices)

    def arguments(self, number: int) -> dict[str, Any]:
        """Draw engine arguments with argument `number` among them."""
        more = self.random.sample(ARGUMENTS, self.random.randrange(4))
        return {name: self.value() for name in (self.argument(number), *more)}

    def name(self) -> str:
        """Draw the name of a model."""
        one = self.canaries
        return self.random.choice(
            [
                "shapes", "qwen2_vl", "Qwen/Qwen2-VL-2B-Instruct", str(one.model), "./canary-model", "~/canary-model",
                "canary-model", "canary/repository", "--trust-remote-code", f"{one.address}/v1", "", "../canary-model",
            ]
        )  # fmt: skip

    def made_by(self, number: int) -> dict[str, Any]:
        """Draw the description of a model, now and then with fields that it has not."""
        draw = self.random
        found: dict[str, Any] = {
            "name": self.name(), "model": self.name(), "family": draw.choice(["shapes", "qwen2_vl", "canary", None]),
            "revision": draw.choice([None, "main", "refs/pr/1", "--trust-remote-code", str(self.canaries.model)]),
            "backend": draw.choice(_BACKENDS), "pinned": draw.choice([None, "0.23.0"]),
            "server": draw.choice(["", self.canaries.address, "http://lab:8000", f"unix:{self.canaries.key_file}"]),
        }  # fmt: skip
        if draw.random() < 0.2:
            found |= {"engine_args": self.arguments(number), "trust_remote_code": True, "typed": list(ARGUMENTS)}
        return found

    def recipe(self, number: int) -> dict[str, Any]:
        """Draw how an answer was made."""
        draw = self.random
        found: dict[str, Any] = {
            "model": self.name(), "family": "shapes", "engine": "vLLM", "engine_version": "0.32.0",
            "engine_args": self.arguments(number), "made_by": self.made_by(number),
            "mode": draw.choice(["chat", "raw"]),
            "adapter": draw.choice(["", str(self.canaries.model)]), "request_id": draw.choice(["", "../canary"]),
            "sampling": {"temperature": 0.5, "extra": {draw.choice(_EXTRA): self.value()}},
        }  # fmt: skip
        if draw.random() < 0.2:
            spec = {**self.made_by(number), "engine_args": self.arguments(number), "trust_remote_code": True}
            found |= {"spec": spec}
        return found

    def document(self, number: int) -> bytes:
        """Draw a conversation to import."""
        user = {
            "role": "user",
            "state": "complete",
            "created_ms": 1,
            "id": 1,
            "parts": [_text("go")],
            "active_child": 2,
        }
        answer = {
            "role": "assistant", "state": self.random.choice(["complete", "interrupted"]), "created_ms": 2, "id": 2,
            "parent": 1, "parts": [_text("gone")], "recipe": self.recipe(number),
        }  # fmt: skip
        found: dict[str, Any] = {
            "format": "vlmtui conversation", "version": 1, "title": "t", "model": self.name(), "created_ms": 1,
            "updated_ms": 2, "active_root": 1, "turns": [user, answer],
        }  # fmt: skip
        if self.random.random() < 0.05:
            found[self.argument(number)] = self.value()
        return json.dumps(found).encode()

    def record(self, number: int) -> bytes:
        """Draw a user's record of a model family."""
        where = self.random.choice(["", "_several", "_video", "routes", "hf_overrides", "model_class", "extends"])
        argument, value = self.argument(number), _toml(self.value())
        head = 'family = "mine"\ntitle = "Mine"\n'
        model = self.random.choice([str(self.canaries.model), "canary/repository", "bundled:../canary-model"])
        body = f'models = [{json.dumps(model)}]\narchitectures = ["Qwen2VLForConditionalGeneration"]\n'
        rest = '[takes.image]\nplaceholder = "<image>"\n[raw]\nby = "processor"\n'
        match where:
            case "routes":
                rest += f"[[routes]]\nengine_args = {{ {argument} = {value} }}\n"
            case "hf_overrides":
                rest += f"[[routes]]\nhf_overrides = {{ {argument} = {value} }}\n"
            case "model_class":
                rest += '[[routes]]\narchitecture = "X"\nmodel_class = "tarsier:Thing"\n'
            case "extends":
                parent = self.random.choice(["qwen2_vl", "deepseek_ocr", "florence2"])
                body = f'extends = "{parent}"\nmodels = [{json.dumps(model)}]\n'
                rest = f"[engine_args]\n{argument} = {value}\n"
            case _:
                rest += f"[engine_args{where}]\n{argument} = {value}\n"
        return f"{head}{body}{rest}".encode()

    def folder(self, number: int) -> dict[str, bytes]:
        """Draw the small files of a model folder."""
        config = {
            "architectures": [self.random.choice(["Qwen2VLForConditionalGeneration", "CanaryModel"])],
            "model_type": "qwen2_vl",
            "auto_map": {"AutoModel": f"{MODULE}.Model", "AutoConfig": f"canary/x--{MODULE}.C"},
            self.argument(number): self.value(), "trust_remote_code": True, "engine_args": self.arguments(number),
        }  # fmt: skip
        return {
            "config.json": json.dumps(config).encode(),
            "tokenizer_config.json": json.dumps({"auto_map": {"AutoTokenizer": [f"{MODULE}.T", None]}}).encode(),
            f"{MODULE}.py": (self.canaries.folder / f"{MODULE}.py").read_bytes(),
        }

    def comparison(self, number: int, honest: dict[str, Any]) -> bytes:
        """Draw a kept comparison: an honest one in which something was changed."""
        found = json.loads(json.dumps(honest))
        draw, side = self.random, found["sides"][0]
        for _ in range(draw.randrange(1, 4)):
            match draw.randrange(7):
                case 0:
                    found["engine_args"] = self.arguments(number)
                case 1:
                    found["model"] = self.name()
                case 2:
                    side["adapter"] = str(self.canaries.model)
                case 3:
                    side["engine"] = {
                        "model": self.name(), "backend": draw.choice(_BACKENDS), "engine": "vLLM",
                        "engine_version": "0", "engine_args": self.arguments(number),
                    }  # fmt: skip
                case 4:
                    side["own"] = {"temperature": 0.0, "extra": {draw.choice(_EXTRA): self.value()}}
                case 5:
                    found["sampling"]["extra"] = {self.argument(number): self.value()}
                case 6:
                    draw.choice([found, side])[self.argument(number)] = self.value()
        return json.dumps(found).encode()

    def golden(self, number: int) -> bytes:
        """Draw a golden prompt."""
        file = self.random.choice([str(self.canaries.key_file), "../canary-key", "bundled:../../canary", "canary-key"])
        found = {
            "format": 1, "model": self.name(), "case": "text", "mode": "chat", "prompt": ["a"], "token_ids": [1],
            "by": self.random.choice(["processor", "engine"]),
            "conversation": [{"role": "user", "parts": [{"text": "a"}, {"media": 0}]}],
            "media": [{"modality": "image", "file": file, "sha256": "0" * 64, "tokens": 1}],
            self.argument(number): self.value(), "engine_args": self.arguments(number),
        }  # fmt: skip
        return json.dumps(found).encode()

    def batch(self, number: int) -> bytes:
        """Draw a batch file of one line."""
        line = {
            "id": "1", "question": "go", "model": self.name(), self.argument(number): self.value(),
            "engine_args": self.arguments(number), "adapter": str(self.canaries.model),
        }  # fmt: skip
        names = list(line)
        kept = {name: line[name] for name in names if name in ("id", "question") or self.random.random() < 0.4}
        return json.dumps(kept).encode() + b"\n"

    def served(self, number: int) -> list[dict[str, Any]]:
        """Draw the list of models of a server."""
        one = {"id": self.name() or "x", "object": "model", "root": self.name(), "max_model_len": 64}
        return [{**one, self.argument(number): self.value(), "parent": self.name()}]


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)
