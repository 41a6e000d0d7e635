"""Write the cards of the offline judges that ship, from conTest and decTest.

python scripts/make_cards.py [DIRECTORY]     DIRECTORY keeps the embeddings between calls
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from strop.disk import write
from strop.groupeval.human import shipped_groups
from strop.groupeval.offline import VERSIONS, offline_client, offline_spec, pieces
from strop.groupeval.profile import Profile
from strop.groupeval.validation import (
    CARDS,
    JudgedGroups,
    control_groups,
    control_summary,
    effects,
    make_card,
    validate,
    verdicts_of,
)
from strop.verbs.groupeval_validate import DATA, KEPT, PROFILE, KnownVectors
from strop.verbs.groupeval_verbs import VALIDATE

FREE = dict.fromkeys(("calls", "prompt_tokens", "completion_tokens", "cost"), 0)


def main() -> None:
    groups, profile = shipped_groups(), Profile.load(PROFILE)
    embed = KnownVectors(Path(sys.argv[1]) / KEPT if len(sys.argv) > 1 else None)
    texts = [text for one in groups for text in (*one.texts, one.context or "")]
    embed.learn([piece for text in texts for piece in pieces(text)], VALIDATE.asked({}))
    for model in VERSIONS:
        for features in ("minilm", "ngrams"):
            spec = offline_spec(profile, features=features, model=model)
            client = offline_client(spec, profile, embed)
            verdicts = verdicts_of(groups, client, profile)
            found = validate(JudgedGroups.of(spec.title, verdicts), groups)
            controls = control_groups(groups)
            said = {name: verdicts_of(some, client, profile) for name, some in controls.items()}
            tried = control_summary(verdicts, said)
            more = {**tried, "effects": effects(groups, verdicts), "per_1000_texts": FREE}
            card = make_card(spec, profile, found, DATA, verdicts, **more)
            content = json.dumps(card, indent=2, allow_nan=False) + "\n"
            write(CARDS / f"{model}-{features}.json", content.encode())
            told = [f"{name} {one['spearman']:.3f}" for name, one in found["means"].items()]
            print(spec.title, *told, flush=True)


if __name__ == "__main__":
    main()
