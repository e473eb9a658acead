"""An engine that is asked block by block, as the workers of a cluster are, one block after another."""

from typing import Any

from turnout.engine import Engine, EngineWrapper, Sequential
from turnout.engine.ray.blocks import blocks_of, part, question_of
from turnout.engine.ray.merging import Merge


class InBlocks(EngineWrapper):
    """Cuts questions into blocks, and merges the answers in the order of blocks."""

    def __init__(self, inside: Engine | None = None) -> None:
        super().__init__(inside or Sequential())
        self.most_blocks = 0

    def answer(self, questions: Any) -> Any:
        merges = [Merge(*question) for question in questions]
        cut = blocks_of(questions)
        self.most_blocks = max(self.most_blocks, len(cut))
        for block in cut:
            asked = [question_of(questions[q][0], part(questions[q][1], items)) for q, items in block]
            for (q, items), answer in zip(block, super().answer(asked), strict=True):
                merges[q].add(items, answer)
        return [merge.answer() for merge in merges]
