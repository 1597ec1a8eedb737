"""The kinds of things in a house, by the names of ALFRED: which object may stand where and what can be done with it.

Facts of ALFWorld's own games (release 2.1.1), read off their PDDL (`canContain`, `openable`, `heatable` and so on). The
places of an object come in the order of how often it stands there at the start of 340 of these games: where a person
would look first.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of object: the kinds of receptacles that may hold it, likely ones first, and what it is good for."""

    places: tuple[str, ...]
    can: frozenset[str] = frozenset()
    """Of clean, heat, cool, slice; `hollow` objects could hold others, `fixed` ones cannot be taken."""


def _kind(places: str, can: str = "") -> Kind:
    return Kind(tuple(places.split()), frozenset(can.split()))


FOOD = "clean heat cool slice"
VESSEL = "clean heat cool hollow"

OBJECTS = {
    "alarmclock": _kind("desk sidetable dresser shelf diningtable countertop"),
    "apple": _kind("fridge countertop microwave diningtable garbagecan sinkbasin sidetable", FOOD),
    "book": _kind("bed desk drawer countertop diningtable cabinet dresser sidetable coffeetable sofa armchair shelf ottoman"),
    "bowl": _kind("cabinet fridge countertop diningtable desk shelf microwave sinkbasin sidetable dresser coffeetable", "clean cool hollow"),
    "box": _kind("diningtable sofa coffeetable dresser sidetable shelf desk armchair cabinet ottoman", "hollow"),
    "bread": _kind("countertop diningtable fridge sidetable microwave garbagecan", "heat cool slice"),
    "butterknife": _kind("countertop diningtable drawer sinkbasin sidetable", "clean"),
    "candle": _kind("toilet countertop cabinet shelf drawer sidetable diningtable coffeetable dresser cart"),
    "cd": _kind("drawer desk dresser sidetable shelf garbagecan diningtable cabinet safe countertop"),
    "cellphone": _kind("bed drawer desk dresser countertop sidetable armchair diningtable shelf safe coffeetable sofa ottoman"),
    "cloth": _kind("bathtubbasin cabinet countertop drawer sinkbasin shelf toilet cart armchair desk dresser garbagecan laundryhamper sidetable", "clean"),
    "creditcard": _kind("drawer sidetable shelf coffeetable dresser armchair desk sofa countertop diningtable ottoman safe"),
    "cup": _kind("cabinet countertop fridge diningtable sinkbasin microwave shelf sidetable", VESSEL),
    "desklamp": _kind("sidetable desk dresser shelf coffeetable", "fixed"),
    "dishsponge": _kind("countertop cabinet diningtable drawer sinkbasin garbagecan bathtubbasin shelf toilet cart sidetable", "clean"),
    "egg": _kind("fridge countertop sinkbasin garbagecan microwave diningtable sidetable", FOOD),
    "fork": _kind("countertop diningtable drawer sinkbasin sidetable", "clean"),
    "glassbottle": _kind("countertop cabinet diningtable sinkbasin fridge shelf microwave"),
    "handtowel": _kind("handtowelholder countertop bathtubbasin cabinet cart drawer garbagecan shelf sidetable sinkbasin toilet"),
    "kettle": _kind("stoveburner countertop cabinet diningtable sinkbasin shelf sidetable", "clean"),
    "keychain": _kind("drawer desk sidetable dresser diningtable shelf armchair sofa coffeetable safe countertop ottoman"),
    "knife": _kind("countertop diningtable drawer sinkbasin sidetable", "clean"),
    "ladle": _kind("countertop drawer cabinet diningtable sinkbasin", "clean"),
    "laptop": _kind("bed diningtable sofa desk armchair coffeetable sidetable dresser countertop ottoman"),
    "lettuce": _kind("countertop diningtable fridge sinkbasin garbagecan sidetable", "clean cool slice"),
    "mug": _kind("countertop coffeemachine cabinet fridge diningtable microwave sinkbasin desk shelf sidetable dresser", VESSEL),
    "newspaper": _kind("sofa diningtable coffeetable shelf sidetable armchair drawer dresser ottoman cabinet garbagecan"),
    "pan": _kind("stoveburner countertop cabinet diningtable fridge sidetable sinkbasin", "clean cool hollow"),
    "pen": _kind("desk diningtable dresser sidetable drawer shelf countertop garbagecan coffeetable"),
    "pencil": _kind("drawer sidetable desk dresser diningtable shelf countertop garbagecan coffeetable"),
    "peppershaker": _kind("countertop cabinet drawer diningtable shelf sidetable"),
    "pillow": _kind("bed sofa armchair ottoman"),
    "plate": _kind("cabinet countertop diningtable fridge shelf sinkbasin microwave coffeetable sidetable", VESSEL),
    "pot": _kind("stoveburner countertop fridge diningtable cabinet shelf sinkbasin sidetable", "clean cool hollow"),
    "potato": _kind("countertop fridge diningtable microwave sinkbasin garbagecan sidetable", FOOD),
    "remotecontrol": _kind("sofa coffeetable armchair drawer dresser sidetable diningtable shelf desk countertop ottoman"),
    "saltshaker": _kind("cabinet countertop diningtable drawer shelf sidetable"),
    "soapbar": _kind("countertop sinkbasin toilet cabinet shelf drawer bathtubbasin garbagecan cart sidetable", "clean"),
    "soapbottle": _kind("countertop cabinet diningtable garbagecan toilet shelf sidetable drawer cart"),
    "spatula": _kind("countertop diningtable drawer sinkbasin sidetable", "clean"),
    "spoon": _kind("countertop drawer diningtable sinkbasin sidetable", "clean"),
    "spraybottle": _kind("countertop cabinet toilet garbagecan shelf cart diningtable dresser sidetable drawer"),
    "statue": _kind("shelf diningtable countertop sidetable coffeetable dresser desk safe"),
    "tissuebox": _kind("sidetable shelf diningtable coffeetable countertop desk drawer dresser cart cabinet garbagecan toilet"),
    "toiletpaper": _kind("toilet cabinet countertop toiletpaperhanger shelf garbagecan drawer cart sidetable dresser"),
    "tomato": _kind("countertop fridge diningtable garbagecan sinkbasin sidetable microwave", FOOD),
    "vase": _kind("shelf countertop cabinet diningtable coffeetable sidetable dresser desk safe"),
    "watch": _kind("coffeetable diningtable sidetable dresser drawer shelf desk"),
    "winebottle": _kind("countertop diningtable cabinet garbagecan shelf fridge sidetable", "cool"),
}  # fmt: skip

_PLACES = (
    "armchair bathtubbasin bed cabinet cart coffeemachine coffeetable countertop desk diningtable drawer dresser fridge"
    " garbagecan handtowelholder laundryhamper microwave ottoman safe shelf sidetable sinkbasin sofa stoveburner toaster"
    " toilet toiletpaperhanger towelholder tvstand"
)
PLACES = tuple(_PLACES.split())
"""The kinds of receptacles."""

OPENABLE = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe"})
"""In some games a cabinet or a drawer cannot be opened, and is never closed; here all can."""

ROOMS = {
    "kitchen": (
        "cabinet coffeemachine countertop diningtable drawer fridge garbagecan microwave shelf sidetable sinkbasin"
        " stoveburner toaster",
        "apple book bowl bread butterknife cellphone creditcard cup dishsponge egg fork glassbottle kettle knife ladle"
        " lettuce mug pan peppershaker plate pot potato saltshaker soapbottle spatula spoon statue tomato vase winebottle",
    ),
    "bathroom": (
        "bathtubbasin cabinet cart countertop drawer garbagecan handtowelholder shelf sidetable sinkbasin toilet"
        " toiletpaperhanger towelholder",
        "candle cloth dishsponge handtowel soapbar soapbottle spraybottle tissuebox toiletpaper",
    ),
    "bedroom": (
        "armchair bed desk drawer dresser garbagecan laundryhamper safe shelf sidetable",
        "alarmclock book bowl box cd cellphone cloth creditcard keychain laptop mug pen pencil pillow statue tissuebox"
        " vase watch",
    ),
    "living room": (
        "armchair cabinet coffeetable diningtable drawer dresser garbagecan ottoman safe shelf sidetable sofa tvstand",
        "book box candle cellphone creditcard keychain laptop newspaper pen pencil pillow plate remotecontrol statue"
        " tissuebox vase watch",
    ),
}
"""The receptacles of a room and the objects that are at home there."""
SEVERAL = frozenset({"cabinet", "drawer", "shelf", "countertop", "sidetable", "stoveburner", "diningtable", "armchair"})
"""Receptacles that a room has more than one of."""

HELDOUT_OBJECTS = frozenset({"kettle", "ladle", "newspaper", "potato", "statue", "toiletpaper", "watch", "winebottle"})
HELDOUT_PLACES = frozenset({"cart", "laundryhamper", "ottoman", "safe", "tvstand"})
"""What neither seeds nor simulator know; held-out tasks do."""
