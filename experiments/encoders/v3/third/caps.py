"""Short sentences in the manner of captions, of a grammar: what someone or something does where, with near variants."""

import json, lzma, random, sys

R = random.Random(11)
WHO = """man|woman|boy|girl|child|baby|toddler|young man|young woman|old man|elderly woman|little girl|small boy|teenager|couple|group of people|group of children|crowd|family|lady|guy|person|worker|soldier|policeman|firefighter|chef|cook|dancer|singer|musician|guitarist|drummer|cyclist|runner|swimmer|surfer|skier|snowboarder|climber|hiker|football player|basketball player|baseball player|tennis player|referee|coach|student|teacher|doctor|nurse|farmer|fisherman|carpenter|painter|photographer|tourist|bride|clown|magician|dog|black dog|brown dog|white dog|puppy|small dog|cat|gray cat|kitten|horse|brown horse|cow|sheep|goat|pig|monkey|panda|bear|lion|tiger|elephant|zebra|giraffe|deer|rabbit|squirrel|mouse|hamster|bird|parrot|eagle|duck|swan|seagull|penguin|turtle|frog|snake|fish|shark|dolphin|whale|bus|red car|truck|train|motorcycle|bicycle|airplane|helicopter|boat|ship""".split(
    "|"
)
PEOPLE = set(WHO[: WHO.index("dog")])
VEH = set(WHO[WHO.index("bus") :])
OBJ = {
    "play": "guitar|piano|violin|flute|drums|trumpet|saxophone|harp|accordion|keyboard|cello|chess|cards|football|soccer|basketball|baseball|tennis|golf|hockey|volleyball|a video game|table tennis|rugby|cricket".split(
        "|"
    ),
    "eat": "an apple|a banana|a sandwich|pizza|soup|rice|noodles|ice cream|cake|a hot dog|a carrot|bread|salad|a cookie|grapes|popcorn|an orange|cereal".split(
        "|"
    ),
    "cut": "an onion|a tomato|a potato|carrots|a cucumber|bread|paper|a cake|wood|meat|fish|garlic|a pumpkin|a watermelon|a lemon|grass|hair|cloth|a rope".split(
        "|"
    ),
    "slice": "an onion|a tomato|a potato|a carrot|a cucumber|bread|meat|ginger|a mushroom|a pepper|a lemon|ham|cheese".split(
        "|"
    ),
    "peel": "a potato|an orange|a banana|an apple|a shrimp|a carrot|an egg|garlic".split("|"),
    "cook": "rice|an egg|pasta|meat|a steak|fish|soup|vegetables|bacon|pancakes|a sauce".split("|"),
    "pour": "water into a glass|milk into a bowl|oil into a pan|sauce over pasta|wine into a glass|coffee into a cup|batter into a tin|sugar into a bowl".split(
        "|"
    ),
    "mix": "flour and water|eggs in a bowl|the ingredients|paint|a salad|a drink".split("|"),
    "ride": "a horse|a bicycle|a motorcycle|a bike|a skateboard|a scooter|an elephant|a wave|a roller coaster|a bull|a camel|an escalator".split(
        "|"
    ),
    "drive": "a car|a truck|a tractor|a bus|a boat|a golf cart|a motorbike".split("|"),
    "hold": "a camera|a baby|an umbrella|a sign|a flag|a ball|a balloon|a microphone|a book|a cup|a fish|a knife|a snake|a puppy|flowers".split(
        "|"
    ),
    "carry": "a bag|a box|a ladder|a child|a surfboard|a backpack|groceries|a tray|firewood|a suitcase".split(
        "|"
    ),
    "throw": "a ball|a frisbee|a stone|a stick|a spear|a baseball|a snowball|a knife".split("|"),
    "catch": "a ball|a fish|a frisbee|a bus|a thief".split("|"),
    "kick": "a ball|a soccer ball|a door|a bag|an opponent".split("|"),
    "read": "a book|a newspaper|a magazine|a letter|a map|a menu".split("|"),
    "write": "a letter|on a board|in a notebook|a song|a report".split("|"),
    "wear": "a hat|a red shirt|sunglasses|a helmet|a blue dress|a suit|a coat|a mask|a uniform|a white shirt|jeans|a costume|a scarf".split(
        "|"
    ),
    "watch": "television|a game|a movie|a parade|the sea|the children|a bird".split("|"),
    "wash": "the dishes|a car|his hands|clothes|a window|a dog|vegetables".split("|"),
    "paint": "a wall|a picture|a fence|a house|a portrait|her nails".split("|"),
    "build": "a house|a sandcastle|a wall|a snowman|a fence|a boat".split("|"),
    "fix": "a car|a bicycle|a roof|a pipe|a computer|a door".split("|"),
    "open": "a door|a window|a box|a bottle|a present|a package".split("|"),
    "push": "a stroller|a cart|a car|a wheelchair|a swing|a button".split("|"),
    "climb": "a tree|a mountain|a wall|a ladder|a rope|a rock|the stairs".split("|"),
    "cross": "the street|a river|a bridge|the finish line|the road".split("|"),
    "feed": "a horse|the ducks|a baby|the birds|a cat|a goat".split("|"),
    "hug": "a dog|a friend|a child|a tree|a teddy bear".split("|"),
    "chase": "a ball|a cat|a dog|a rabbit|a bird|a car|a squirrel".split("|"),
    "lick": "a bowl|an ice cream|a plate|a child|a window".split("|"),
    "chew": "a bone|a stick|a shoe|gum|grass|a toy".split("|"),
    "drink": "water|milk|coffee|beer|juice|tea from a cup|wine|from a bottle".split("|"),
    "take": "a photo|a picture|a bath|a nap|a shower|a break|notes".split("|"),
    "put": "on makeup|on a coat|meat in a pan|a book on a shelf|seasoning on meat|a lid on a pot|a tray in the oven".split(
        "|"
    ),
    "shoot": "a gun|an arrow|a basketball|a rifle|a film".split("|"),
    "look": "at a map|out of a window|at the camera|through a telescope|at a painting|at the mountains|in a mirror".split(
        "|"
    ),
    "talk": "on the phone|to a woman|to a crowd|to a policeman|into a microphone|with friends".split("|"),
}
ALONE = "run|walk|jump|sit|stand|sleep|swim|dance|sing|smile|laugh|cry|wait|lie down|crawl|fall|play|rest|eat|roll|bark|fly|float|climb|spin|skate|ski|surf|work|exercise|pose|kneel|bow|cheer|march|dive".split(
    "|"
)
WHERE = "in the park|on the beach|on a bench|in the grass|in a field|in the snow|on the street|on a road|in a pool|in the water|in the ocean|on a stage|in a kitchen|at a table|on a couch|on a bed|in front of a house|near a lake|by a river|in a forest|on a mountain|on a rock|at night|in the rain|on a sidewalk|in a city|in a crowd|in a restaurant|in a car|on a boat|on a bridge|under a tree|through the woods|down a hill|on the floor|in a garden|in a stadium|in a gym|in a classroom|at the station|in a store|over a fence|along a path|outside|inside|on a grassy hill|in shallow water|across a field|next to a car|behind a fence|on a dirt road|in a parking lot|at the airport|at a market|in a dark room|on a swing|in a tent".split(
    "|"
)
VANIMAL = "eat lick chew chase carry drink watch climb cross catch look".split()
VVEH = "cross carry".split()
ALOA = "run walk jump sit stand sleep swim rest eat roll play fly float climb lie\u00a0down".replace(
    "\u00a0", " "
).split(" ")


def ing(v):
    w, *r = v.split(" ")
    if w == "lie":
        w = "lying"
    elif w in ("run", "sit", "swim", "cut", "hug", "put", "spin", "skip"):
        w += w[-1] + "ing"
    elif w.endswith("e") and not w.endswith("ee"):
        w = w[:-1] + "ing"
    else:
        w += "ing"
    return " ".join([w, *r])


def third(v):
    w, *r = v.split(" ")
    w = (
        w[:-1] + "ies"
        if w.endswith("y") and w[-2] not in "aeou"
        else w + "es"
        if w.endswith(("s", "sh", "ch", "x"))
        else w + "s"
    )
    return " ".join([w, *r])


def art(n):
    if n in ("people",):
        return n
    return ("an " if n[0] in "aeiou" else "a ") + n


COUNT = ["two", "three", "four", "several", "some", "many"]
PL = {
    "man": "men",
    "woman": "women",
    "child": "children",
    "baby": "babies",
    "lady": "ladies",
    "person": "people",
    "mouse": "mice",
    "sheep": "sheep",
    "deer": "deer",
    "fish": "fish",
    "bus": "buses",
    "family": "families",
    "policeman": "policemen",
    "fisherman": "fishermen",
    "young man": "young men",
    "young woman": "young women",
    "old man": "old men",
    "elderly woman": "elderly women",
}


def scene():
    who = R.choice(WHO)
    if who in PEOPLE:
        verb = R.choice(list(OBJ)) if R.random() < 0.7 else None
    elif who in VEH:
        verb = R.choice(VVEH) if R.random() < 0.2 else None
    else:
        verb = R.choice(VANIMAL) if R.random() < 0.5 else None
    if verb:
        obj = R.choice(OBJ[verb])
    else:
        obj = None
        verb = R.choice(
            ["drive", "park", "stop", "wait", "move", "turn"]
            if who in VEH
            else ALONE
            if who in PEOPLE
            else "run|walk|jump|sit|stand|sleep|swim|rest|eat|roll|play|climb|lie down|fly".split("|")
        )
    return dict(
        who=who,
        verb=verb,
        obj=obj,
        where=R.choice(WHERE) if R.random() < (0.75 if obj is None else 0.35) else None,
        n=R.choice(COUNT) if R.random() < 0.15 else None,
        other=R.choice(WHO[:60]) if R.random() < 0.06 else None,
    )


def words(s):
    who, verb, obj = s["who"], s["verb"], s["obj"] or ""
    if (
        s["verb"] == "play"
        and obj
        and " " not in obj
        and obj
        not in (
            "chess",
            "cards",
            "football",
            "soccer",
            "basketball",
            "baseball",
            "tennis",
            "golf",
            "hockey",
            "volleyball",
            "rugby",
            "cricket",
        )
    ):
        obj = ("the " if R.random() < 0.5 else "a " if obj != "drums" else "the ") + obj
    plural = s["n"] and not who.startswith(("group", "crowd", "couple"))
    if plural:
        subj = f"{s['n']} {PL.get(who, who + 's')}"
    else:
        subj = ("the " + who) if R.random() < 0.15 else art(who)
    if s["other"] and not plural:
        subj += " and " + art(s["other"])
        plural = True
    draw = R.random()
    be = "are" if plural else "is"
    rest = " ".join(x for x in (obj, s["where"]) if x)
    if draw < 0.62:
        t = f"{subj} {be} {ing(verb)} {rest}"
    elif draw < 0.75:
        t = f"{subj} {ing(verb)} {rest}"
    elif draw < 0.9:
        t = f"{subj} {verb if plural else third(verb)} {rest}"
    elif draw < 0.94:
        t = f"There {be} {subj} {ing(verb)} {rest}"
    elif draw < 0.97:
        t = f"{subj} {be} not {ing(verb)} {rest}"
    else:
        t = (
            f"{ing(verb)} {rest} {be if False else 'is'} {subj}"
            if False
            else f"{subj} who {be} {ing(verb)} {rest}"
        )
    t = " ".join(t.split())
    t = t[0].upper() + t[1:]
    return t + ("." if R.random() < 0.8 else "")


def vary(s):
    s = dict(s)
    d = R.random()
    o = scene()
    if d < 0.3:
        s["who"] = R.choice(
            [w for w in WHO if (w in PEOPLE) == (s["who"] in PEOPLE) and (w in VEH) == (s["who"] in VEH)]
        )
    elif d < 0.55 and s["obj"]:
        s["obj"] = R.choice(OBJ[s["verb"]])
    elif d < 0.7 and s["who"] in PEOPLE:
        s["verb"], s["obj"] = o["verb"], o["obj"]
    elif d < 0.9:
        s["where"] = R.choice([None, *R.sample(WHERE, 3)])
    else:
        s["n"] = R.choice([None, *COUNT])
    if s["who"] in PEOPLE and s["obj"] is None and s["verb"] not in ALONE:
        s["verb"] = R.choice(ALONE)
    return s


seen = set()
while len(seen) < int(sys.argv[1]):
    s = scene()
    for _ in range(4):
        seen.add(words(s))
        s = vary(s)
seen = sorted(seen)
R.shuffle(seen)
with lzma.open(sys.argv[2], "wt") as f:
    f.writelines(json.dumps({"text": t, "kind": "title"}) + "\n" for t in seen)
print("\n".join(seen[:40]))
import os

print(os.path.getsize(sys.argv[2]))
