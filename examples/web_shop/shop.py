"""A web shop with an API: find the cheapest offers, fill a cart, apply a coupon, check out."""

import random
from typing import Literal, get_args

from pydantic import Field

from genenv.contracts.domain import SpecError
from genenv.contracts.types import Json
from genenv.domains.helpers import Spec, ToolDomain, World
from genenv.reading.parsing import Call

Kind = Literal["lamp", "mug", "chair", "clock", "scarf", "kettle", "pillow", "basket"]
Coupon = Literal["SPRING", "VIP"]


class Offer(Spec):
    kind: Kind
    price: int = Field(ge=1, le=500)
    stock: int = Field(ge=0, le=20)


class Visit(Spec):  # what the simulator writes: the shop, and what a customer wants from it
    customer: int = Field(ge=1000, le=9999)
    want: list[Kind] = Field(min_length=1, max_length=6)
    coupon: Coupon | None
    offers: list[Offer] = Field(min_length=1, max_length=12)


class Shop(World):  # the state of one visit; an offer's number is its place in the list
    def __init__(self, visit: Visit) -> None:
        self._offers, self._cart, self._coupon = visit.offers, dict[int, int](), ""

    def search(self, kind: str) -> Json:
        """All offers of one kind of thing: number, price and pieces in stock."""
        return [{"offer": i, "price": o.price, "stock": o.stock} for i, o in enumerate(self._offers) if o.kind == kind]

    def add_to_cart(self, offer: int, pieces: int) -> None:
        """Put so many pieces of an offer into the cart."""
        if not 0 <= offer < len(self._offers) or not 0 < pieces <= self._offers[offer].stock:
            raise ValueError("not in stock")  # the agent reads this and may try something else
        self._cart[offer] = pieces

    def apply_coupon(self, code: Coupon) -> None:
        """Take a discount on the order."""
        self._coupon = code

    def checkout(self, customer: int) -> None:
        """Order what is in the cart. This ends the visit."""
        self.result = [customer, self._coupon, sorted([i, n] for i, n in self._cart.items())]


class WebShop(ToolDomain[Visit]):
    name, families = "web_shop", ("1-kind", "2-kind", "3-kind")
    spec_model, world = Visit, Shop
    instructions = 'For each kind in "want" one offer with enough "stock" must be the cheapest.'

    def random_spec(self, family: str, rng: random.Random) -> Visit:
        kinds = rng.sample(get_args(Kind), int(family[0]))
        offers = [Offer(kind=rng.choice(kinds), price=rng.randint(1, 99), stock=rng.randint(0, 9)) for _ in range(9)]
        want, coupon = kinds + rng.choices(kinds, k=rng.randint(0, 3)), rng.choice([None, *get_args(Coupon)])
        return Visit(customer=rng.randint(1000, 9999), want=want, coupon=coupon, offers=offers)

    def describe(self, spec: Visit) -> tuple[str, str]:
        kinds = sorted(set(spec.want))
        wishes = " and ".join(f"{spec.want.count(k)} x the cheapest {k} in stock" for k in kinds)
        coupon = f" with the coupon {spec.coupon}" if spec.coupon else ""
        return f"{len(kinds)}-kind", f"Customer {spec.customer} orders {wishes}{coupon}."

    def solution(self, spec: Visit) -> list[list[Call]]:
        search, order = [], [Call("apply_coupon", {"code": spec.coupon})] if spec.coupon else []
        for kind in sorted(set(spec.want)):
            pieces = spec.want.count(kind)
            fit = sorted((o.price, i) for i, o in enumerate(spec.offers) if o.kind == kind and o.stock >= pieces)
            if not fit or (len(fit) > 1 and fit[0][0] == fit[1][0]):
                raise SpecError("schema", f"want: no cheapest {kind} with {pieces} in stock")
            search.append(Call("search", {"kind": kind}))
            order.append(Call("add_to_cart", {"offer": fit[0][1], "pieces": pieces}))
        return [search, [*order, Call("checkout", {"customer": spec.customer})]]
