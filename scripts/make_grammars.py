"""Write src/strop/assets/grammars/: the grammars that ship, from one set of sentences.

scripts/make_grammars.py            write the files
scripts/make_grammars.py --check    exit code 3 if they are not what this file says
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src/strop/assets/grammars"
HEROES = """Anna Bell, Anna Stone, Clara Stone, Clara Marsh, Martha Marsh, Martha Wood, Rose Wood,
Rose Bell, Tom Reed, Tom Hill, Henry Hill, Henry Marsh, Peter Marsh, Peter Wood, Jack Wood,
Jack Reed"""
WOMEN = ("Anna", "Clara", "Martha", "Rose")
PLACES = """New York, New Haven, New Orleans, San Jose, San Antonio, San Diego, Los Angeles,
Los Gatos, Fort Worth, Fort Wayne, Saint Paul, Saint Louis"""
JOBS = "baker, farmer, teacher, tailor, sailor, painter, doctor, singer"
OBJECTS = """a silver ring, a silver key, a golden ring, a golden cup, an old map, an old clock,
an ivory comb, an ivory box, a red lantern, a red box, an iron key, an iron cup"""
FRIENDS = "Anna, Clara, Martha, Rose, Tom, Henry, Peter, Jack, Ruth, Emma, Paul, Simon"
PLOTS = """stolen thief forest, broken storm shore, eaten ghost castle, hidden witch swamp,
taken pirate harbor, lost crow tower, burned dragon mountain, sold merchant market"""
ENDINGS = """return happily, loss sadly, gift gladly, trade proudly, wedding loudly, song softly,
flight secretly, peace quietly"""
CLASSES = {
    "mood": "happy sad lonely proud tired quiet angry merry calm afraid eager hopeful gentle "
    "restless cheerful bitter curious patient shy brave",
    "quality": "good careful clever honest poor famous skilled humble young kind busy modest "
    "steady cunning rich simple",
    "time": "morning evening night day summer winter autumn spring week year",
    "look": "dark cold bright strange silent long grey white wild lovely dreadful warm windy misty "
    "golden little rainy great distant bare stormy green heavy narrow",
    "ground": "garden river cellar attic well barn field meadow orchard kitchen chapel ditch",
    "water": "lake river sea pond stream bay",
    "person": "woman man stranger king child soldier widow hunter priest beggar",
    "often": "again often sometimes today forever twice",
}
LONG = ("mood", "quality", "look")
"""Classes that have a long tail in the grammar `tail`."""
SENTENCES = {
    ("who", "hero place"): """
{hero.first} {hero.last} , a {hero.girl} , came from {place.one} {place.two} .
In {place.one} {place.two} there lived a {hero.girl} , {hero.first} {hero.last} .
Once {hero.first} {hero.last} lived in the town of {place.one} {place.two} .
A <mood> {hero.girl} named {hero.first} {hero.last} lived in {place.one} {place.two} .
Long ago {hero.first} {hero.last} came to <look> {place.one} {place.two} alone .
{place.one} {place.two} was the home of <mood> {hero.first} {hero.last} then .
Young {hero.first} {hero.last} had always lived in <look> {place.one} {place.two} .
Everyone in {place.one} {place.two} knew the <mood> {hero.girl} {hero.first} {hero.last} .
{hero.first} {hero.last} grew up in {place.one} {place.two} near a <water> .
There was a {hero.girl} in {place.one} {place.two} , {hero.first} {hero.last} .
From {place.one} {place.two} came {hero.first} {hero.last} , a <mood> {hero.girl} .""",
    ("work", "hero job"): """
{hero.She} worked as a {job.name} and sang every <time> .
{hero.She} was a <quality> {job.name} and worked every <time> .
Every <time> {hero.she} worked as a <quality> {job.name} there .
As a {job.name} {hero.she} was <mood> and very <quality> .
The {job.name} of the town was then {hero.first} {hero.last} .
{hero.Her} work as a {job.name} made {hero.him} very <mood> .
{hero.first} , a <quality> {job.name} , worked every <time> .""",
    ("find", "hero object"): """
One <time> {hero.she} found {object.a} {object.kind} {object.noun} in the <look> <ground> .
{object.A} {object.kind} {object.noun} lay in the <ground> , and {hero.she} smiled .
{hero.Her} mother gave {hero.him} {object.a} {object.kind} {object.noun} one <look> <time> there .
In the <ground> {hero.first} {hero.last} saw {object.a} {object.kind} {object.noun} one <time> .
{hero.She} bought {object.a} {object.kind} {object.noun} from a <look> <person> one <time> .
In a <look> <ground> {hero.she} found {object.a} {object.kind} {object.noun} at last .
{hero.first} had {object.a} {object.kind} {object.noun} , the gift of a <person> .
With {object.a} {object.kind} {object.noun} in {hero.her} hand {hero.first} left the <ground> .""",
    ("friend", "hero friend"): """
{hero.Her} friend {friend.name} saw it and was very <mood> .
{friend.name} , {hero.her} friend , came to see it .
{hero.She} showed it to {friend.name} , {hero.her} <quality> friend .
When {friend.name} saw it , {hero.she} became very <mood> .
{hero.first} told {friend.name} about it in a <look> <ground> .
One <time> {friend.name} asked {hero.him} where it was from .
Only {friend.name} knew that {hero.first} had it at home .""",
    ("loss", "object plot"): """
But one <look> <time> the {object.noun} was {plot.done} by a {plot.who} .
Then a <look> {plot.who} came , and the {object.noun} was {plot.done} .
The {object.kind} {object.noun} was {plot.done} by a <look> {plot.who} that <time> .
A {plot.who} came one <time> and the {object.noun} was soon {plot.done} .
That <time> the {object.noun} , {plot.done} by a {plot.who} , vanished .
Nobody saw the {plot.who} by whom the {object.kind} {object.noun} was {plot.done} .
The <look> {plot.who} wanted it , so the {object.noun} was {plot.done} .""",
    ("chase", "hero plot"): """
{hero.first} {hero.last} followed the {plot.who} all the way to the {plot.where} .
For many nights {hero.she} looked for the {plot.who} in the {plot.where} .
{hero.She} went to the {plot.where} and called the {plot.who} every <time> .
To the <look> {plot.where} {hero.first} went , to find the {plot.who} .
In the {plot.where} the {plot.who} waited , and {hero.first} was <mood> .
{hero.first} was <mood> , but {hero.she} went to the <look> {plot.where} .
The {plot.who} ran to the {plot.where} , and {hero.first} {hero.last} followed .""",
    ("turn", "ending friend"): """
return: At last {friend.name} found it and brought it back home .
return: In the end {friend.name} came home with it one <time> .
loss: It was never seen again , and {friend.name} cried there .
loss: Even {friend.name} could not find it after that <look> <time> .
gift: In the end {friend.name} got it as a <look> gift .
gift: So it was given to {friend.name} on a <look> <time> .
trade: {friend.name} paid for it with a bag of <look> apples .
trade: Then {friend.name} sold a <look> horse to get it back .
wedding: That <time> {friend.name} was married with it in a church .
wedding: There was a wedding , and {friend.name} danced all night .
song: {friend.name} made a <look> song of it for the children .
song: Since then {friend.name} has sung about it every <look> <time> .
flight: Then {friend.name} had to leave with it on a ship .
flight: With it {friend.name} ran away over the <look> <water> alone .
peace: {friend.name} spoke , and they all shared it in peace .
peace: They all made peace when {friend.name} spoke that <look> <time> .""",
    ("fame", "place ending"): """
In {place.one} {place.two} people still speak {ending.how} of it .
They {ending.how} told about it in {place.one} {place.two} <often> .
People of {place.one} {place.two} {ending.how} tell the tale today .
The tale was {ending.how} told in {place.one} {place.two} <often> .
All of {place.one} {place.two} {ending.how} remembers it every <time> .""",
    ("close", "hero job"): """
{hero.first} {hero.last} remained a {job.name} for ever .
And {hero.first} {hero.last} stayed a <quality> {job.name} .
So ends the tale of {hero.first} {hero.last} .
Nobody ever forgot the {job.name} {hero.first} {hero.last} .
The {job.name} {hero.first} {hero.last} was <mood> again .""",
}

Law = Callable[[int], float]


def even(rank: int) -> float:
    return 1 / (rank + 3)


def skewed(rank: int) -> float:
    return 1 / rank**1.5


def entries(text: str) -> list[str]:
    return [" ".join(one.split()) for one in text.split(",")]


def weights(n: int, law: Law, dice: random.Random, absent: int | None = None) -> list[float]:
    """One per value, by the law of ranks, in random order."""
    found = [law(rank) for rank in range(1, n + 1)]
    dice.shuffle(found)
    return [0 if k == absent else round(weight, 6) for k, weight in enumerate(found)]


def latents(law: Law, dice: random.Random) -> dict[str, dict]:
    heroes, friends = [one.split() for one in entries(HEROES)], entries(FRIENDS)
    she = [first in WOMEN for first, _ in heroes]
    objects = [one.split() for one in entries(OBJECTS)]
    plots, endings = ([one.split() for one in entries(text)] for text in (PLOTS, ENDINGS))
    gendered = {
        name: [(yes if one else no) for one in she]
        for name, yes, no in (
            ("girl", "girl", "boy"),
            ("she", "she", "he"),
            ("She", "She", "He"),
            ("her", "her", "his"),
            ("Her", "Her", "His"),
            ("him", "her", "him"),
        )
    }
    places, jobs = [one.split() for one in entries(PLACES)], entries(JOBS)

    def plain(values: list[str], **features: list[str]) -> dict:
        return {
            "values": values,
            "weights": weights(len(values), law, dice),
            "features": features,
        }

    first, last = ([one[k] for one in heroes] for k in (0, 1))
    found = {
        "hero": plain(entries(HEROES), first=first, last=last, **gendered),
        "place": plain(entries(PLACES), one=[p[0] for p in places], two=[p[1] for p in places]),
        "job": plain(jobs, name=jobs),
        "object": plain(
            entries(OBJECTS),
            a=[one[0] for one in objects],
            A=[one[0].capitalize() for one in objects],
            kind=[one[1] for one in objects],
            noun=[one[2] for one in objects],
        ),
        "friend": plain(friends, name=friends),
        "plot": plain(
            [one[0] for one in plots],
            done=[one[0] for one in plots],
            who=[one[1] for one in plots],
            where=[one[2] for one in plots],
        ),
        "ending": plain([one[0] for one in endings], how=[one[1] for one in endings]),
    }
    own = [friends.index(name) for name in first]
    rows = weights(len(friends), law, dice)
    known = [[0 if k == hero else w for k, w in enumerate(rows)] for hero in own]
    found["friend"] |= {"given": "hero", "weights": known}
    if law is skewed:
        table = [weights(len(endings), law, dice) for _ in plots]
    else:  # a flat Dirichlet law
        table = [[round(dice.expovariate(1), 6) for _ in endings] for _ in plots]
    found["ending"] |= {"given": "plot", "weights": table}
    return found


def segments(law: Law, dice: random.Random) -> list[dict]:
    found = []
    for (name, scope), text in SENTENCES.items():
        lines = [line for line in text.splitlines() if line]
        variants = []
        for line, weight in zip(lines, weights(len(lines), law, dice), strict=True):
            when, colon, words = line.partition(": ")
            tokens = (words if colon else line).split()
            allowed = {"when": {"ending": when}} if colon else {}
            variants.append({"weight": weight, **allowed, "tokens": tokens})
        length = len(variants[0]["tokens"])
        found.append({"name": name, "length": length, "scope": scope.split(), "variants": variants})
    return found


def coined(n: int, known: set[str]) -> list[str]:
    """Words that nobody knows, in a fixed order."""
    starts = ["b", "br", "d", "dr", "f", "g", "gl", "h", "k", "l", "m", "n", "p", "pl", "r", "s"]
    starts += ["st", "t", "tr", "v"]
    syllables = [a + b for a, b in product(starts, "aeiou")]
    found = [a + b + c for a, b, c in product(syllables, syllables, "lmnrst") if a != b]
    random.Random(3).shuffle(found)
    return [word for word in found if word not in known][:n]


def grammar(law: Law, tail: int = 0) -> dict:
    dice = random.Random(29)
    about, rows = latents(law, dice), segments(law, dice)
    classes = {
        name: {"words": words.split(), "weights": weights(len(words.split()), law, dice)}
        for name, words in CLASSES.items()
    }
    literal = {t for row in rows for v in row["variants"] for t in v["tokens"] if t[0] not in "<{"}
    features = {w for one in about.values() for words in one["features"].values() for w in words}
    words = literal | features | {w for one in classes.values() for w in one["words"]}
    vocabulary = sorted(words)
    extra = coined(tail, words)
    for k, name in enumerate(LONG if tail else ()):
        rare = extra[k :: len(LONG)]
        ranks = [1 / (rank + 10) for rank in range(1, len(rare) + 1)]
        share = 0.3 / 0.7 * sum(classes[name]["weights"]) / sum(ranks)
        classes[name]["words"] += rare
        classes[name]["weights"] += [float(f"{share * one:.6g}") for one in ranks]
    return {
        "format": "strop-language/1",
        "length": sum(row["length"] for row in rows),
        "noise": 0.001,
        "vocabulary": vocabulary + extra,
        "classes": classes,
        "latents": about,
        "mode": ["plot", "ending"],
        "segments": rows,
    }


def texts() -> dict[str, str]:
    """The files by name."""
    made = {"even": grammar(even), "skewed": grammar(skewed), "tail": grammar(even, 16_000)}
    return {f"{name}.json": json.dumps(one) + "\n" for name, one in made.items()}


if __name__ == "__main__":
    if "--check" in sys.argv:
        same = all((FOLDER / name).read_text("utf-8") == text for name, text in texts().items())
        sys.exit(0 if same else 3)
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
