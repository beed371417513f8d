"""llama.cpp with the weights of a model directory, in a format of its own.

It is called through ``llama-cpp-python``'s low-level functions, without a server: a decode of one
batch with a position of each sequence, and a decode of a prompt in its own batches. Where its speed
is measured it runs in a process of its own (``peer_process.py``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from bench.table import seconds
from meshnode.model.config import DecoderConfig

FORMATS = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "int8": "Q8_0", "int4": "Q4_0"}
"""llama.cpp's format of the same size as each of ours."""
_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_TABLES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def write_gguf(directory: Path, path: Path, dtype: str) -> None:
    """Write a Llama of safetensors as a GGUF file, with a vocabulary of single words."""
    import gguf

    config = DecoderConfig.read(directory / "config.json")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope.theta)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(config.vocab_size)])
    writer.add_token_scores([0.0] * config.vocab_size)
    writer.add_token_types([1] * config.vocab_size)
    form = gguf.GGMLQuantizationType[FORMATS[dtype]]
    with safe_open(directory / "model.safetensors", "pt") as file:
        for name in file.keys():  # noqa: SIM118 - not a mapping
            weight = file.get_tensor(name).float().numpy()
            kind = gguf.GGMLQuantizationType.F32 if weight.ndim == 1 else form
            own = _TABLES.get(name) or _layer_name(name)
            if own.endswith(("attn_q.weight", "attn_k.weight")):
                heads = config.num_heads if "attn_q" in own else config.num_kv_heads
                weight = _interleaved(weight, heads)
            writer.add_tensor(own, gguf.quants.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _layer_name(name: str) -> str:
    _, _, layer, rest = name.split(".", 3)
    module, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{_NAMES[module]}.{kind}"


def _interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of heads in the order in which llama.cpp rotates neighbours."""
    by_half = rows.reshape(heads, 2, -1, rows.shape[-1])
    return np.ascontiguousarray(by_half.swapaxes(1, 2).reshape(rows.shape))


class LlamaPeer:
    """One model in llama.cpp. Calls block."""

    def __init__(self, path: Path, threads: int, sequences: int, context: int) -> None:
        import llama_cpp

        self._api: Any = llama_cpp
        self._quiet = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        options = llama_cpp.llama_model_default_params()
        options.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), options)
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = context * sequences
        settings.n_seq_max = sequences
        settings.n_batch = settings.n_ubatch = 512
        settings.n_threads = settings.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        self._batch = llama_cpp.llama_batch_init(512, 0, 1)
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(
            llama_cpp.llama_model_get_vocab(self._model)
        )

    def close(self) -> None:
        """Free the model."""
        self._api.llama_batch_free(self._batch)
        self._api.llama_free(self._context)
        self._api.llama_model_free(self._model)

    def decode_rate(self, prompt: list[int], sequences: int, tokens: int) -> float:
        """Tokens per second of greedy decoding, over all sequences, without the prompts."""
        self._clear()
        for sequence in range(sequences):
            self._run([(t, i, sequence) for i, t in enumerate(prompt)])
        latest = [self._argmax(-1)] * sequences

        def generate() -> None:
            nonlocal latest
            for step in range(tokens):
                position = len(prompt) + step
                self._run([(t, position, s) for s, t in enumerate(latest)], every=True)
                latest = [self._argmax(s) for s in range(sequences)]

        return sequences * tokens / seconds(generate)

    def prompt_rate(self, prompt: list[int]) -> float:
        """Prompt tokens per second."""
        self._clear()

        def read() -> None:
            for start in range(0, len(prompt), 512):
                part = prompt[start : start + 512]
                self._run([(t, start + i, 0) for i, t in enumerate(part)])
            self._argmax(-1)

        return len(prompt) / seconds(read)

    def log_likelihoods(self, tokens: list[int]) -> np.ndarray:
        """Natural logarithms of the probability of each token but the first."""
        self._clear()
        values: list[float] = []
        for start in range(0, len(tokens), 512):
            part = tokens[start : start + 512]
            self._run([(t, start + i, 0) for i, t in enumerate(part)], every=True)
            for i in range(len(part)):
                if start + i + 1 < len(tokens):
                    logits = self._logits(i).astype(np.float64)
                    logits -= logits.max()
                    values.append(logits[tokens[start + i + 1]] - np.log(np.exp(logits).sum()))
        return np.array(values)

    def _clear(self) -> None:
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)

    def _run(self, tokens: list[tuple[int, int, int]], *, every: bool = False) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence) in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = every or i == len(tokens) - 1
        if self._api.llama_decode(self._context, batch) != 0:
            raise RuntimeError("llama.cpp could not decode")

    def _logits(self, row: int) -> np.ndarray:
        at = self._api.llama_get_logits_ith(self._context, row)
        return np.ctypeslib.as_array(at, shape=(self._vocabulary,))

    def _argmax(self, row: int) -> int:
        return int(self._logits(row).argmax())


@contextmanager
def llama(path: Path, threads: int, sequences: int, context: int = 1200) -> Iterator[LlamaPeer]:
    """A model in llama.cpp for the time of a measurement."""
    peer = LlamaPeer(path, threads, sequences, context)
    try:
        yield peer
    finally:
        peer.close()
