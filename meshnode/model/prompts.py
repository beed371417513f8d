"""Turns a prompt into tokens that fit into the context (interface 4.1)."""

from __future__ import annotations

from meshnode.domain.errors import InvalidRequest, PromptTooLong
from meshnode.domain.generation import GenerationRequest
from meshnode.model.grammar import Grammars
from meshnode.model.loading import ModelFacts
from meshnode.model.sampler import Constraint
from meshnode.model.tokenizer import TokenizerFailed


class Prompts:
    """Tokenises prompts for one model whose context has room for ``context_length`` tokens."""

    def __init__(self, model: ModelFacts, context_length: int) -> None:
        self._model = model
        self._context = context_length
        self._grammars = Grammars(model.tokenizer, model.eos_token_ids)

    def prepared(self, request: GenerationRequest) -> tuple[list[int], Constraint | None]:
        """The prompt's tokens, and what its completion must keep to. Raises InvalidRequest."""
        tokens = self.tokens(request.prompt, special=request.special_tokens)
        if request.json_schema is None:
            return tokens, None
        return tokens, self._grammars.compile(request.json_schema, request.end_tokens)

    def tokens(self, prompt: str, *, special: bool = True) -> list[int]:
        """The prompt's tokens. Raises InvalidRequest if they leave no room for a completion.

        A long prompt takes long. Safe to call from several threads.
        """
        tokenizer = self._model.tokenizer
        fewest = tokenizer.fewest_tokens(prompt)
        if fewest >= self._context:
            # Not tokenised, because it is certainly too long.
            raise self._too_long(f"at least {fewest}")
        try:
            tokens = tokenizer.encode(prompt, special=special) or self._beginning()
        except UnicodeError:
            raise InvalidRequest("prompt", "must be valid Unicode") from None
        except TokenizerFailed:
            raise InvalidRequest("prompt", "cannot be tokenised by this model") from None
        if len(tokens) >= self._context:
            raise self._too_long(str(len(tokens)))
        return tokens

    def _beginning(self) -> list[int]:
        """The tokens of an empty prompt: the token that texts begin with."""
        bos = self._model.config.bos_token_id
        for token in (bos, *sorted(self._model.eos_token_ids)):
            if token is not None and 0 <= token < self._model.card.vocab_size:
                return [token]
        raise InvalidRequest("prompt", "must not be empty")

    def _too_long(self, count: str) -> PromptTooLong:
        return PromptTooLong(
            "prompt", f"has {count} tokens; the context holds {self._context}, completion included"
        )
