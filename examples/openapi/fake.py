"""The petshop of 2-petshop.yaml, as far as a first look needs it: `python3 examples/openapi/fake.py`.

Keeps everything in memory, prints each request, and serves its document at /openapi.yaml to whoever asks.
"""

import json
import pathlib
import re
import sys
import textwrap
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

ADDRESS = ("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 9911)
TOKEN = "petshop-demo-token"
MANIFEST = pathlib.Path(__file__).with_name("2-petshop.yaml")
# The last thing in its ConfigMap.
DOCUMENT = textwrap.dedent(MANIFEST.read_text().split("  openapi.yaml: |\n")[1])

pets = {
    1: {"id": 1, "name": "Bello", "priceCents": 25000, "status": "available", "tags": ["dog"]},
    2: {"id": 2, "name": "Minka", "priceCents": 9000, "status": "available", "tags": ["cat"]},
    3: {"id": 3, "name": "Hansi", "priceCents": 1500, "status": "sold", "tags": ["bird"]},
}
orders = {1: {"id": 1, "petId": 3, "note": "with its cage"}}


class Problem(Exception):
    """A status and what is wrong."""


def page(items, query):
    start, length = int(query.get("cursor", 0)), int(query.get("limit", 20))
    following = start + length
    return 200, {"items": items[start:following], "nextCursor": str(following) if following < len(items) else None}


def found(of, number):
    if number not in of:
        raise Problem(404, "there is no such number")
    return of[number]


def add(to, record):
    record["id"] = max(to, default=0) + 1
    to[record["id"]] = record
    return 201, record


def list_pets(_, query, body):
    states, most = query.get("status"), int(query.get("maxPriceCents", 10**9))
    fits = lambda pet: pet["priceCents"] <= most and (not states or pet["status"] in states.split(","))
    return page([pet for pet in reversed(pets.values()) if fits(pet)], query)


def add_pet(_, query, body):
    return add(pets, {"status": "available", **json.loads(body)})


def find_pets(_, query, body):
    return 200, [pet for pet in pets.values() if pet["name"].lower() == query["name"].lower()]


def get_pet(number, query, body):
    return 200, found(pets, number)


def change_pet(number, query, body):
    found(pets, number).update(json.loads(body))
    return 200, pets[number]


def delete_pet(number, query, body):
    found(pets, number)
    del pets[number]
    return 204, None


def upload_photo(number, query, body):
    found(pets, number)
    return 201, {"url": f"/pets/{number}/photos/1", "bytes": len(body)}


def list_orders(_, query, body):
    pet = query.get("petId")
    return page([order for order in orders.values() if pet is None or str(order["petId"]) == pet], query)


def place_order(_, query, body):
    order = json.loads(body)
    pet = found(pets, order["petId"])
    if pet["status"] != "available":
        raise Problem(409, "that pet is not for sale")
    pet["status"] = "sold"
    return add(orders, order)


def get_order(number, query, body):
    return 200, found(orders, number)


def cancel_order(number, query, body):
    found(pets, found(orders, number)["petId"])["status"] = "available"
    del orders[number]
    return 204, None


def count_stock(_, query, body):
    states = [pet["status"] for pet in pets.values()]
    return 200, {state: states.count(state) for state in ("available", "pending", "sold")}


ROUTES = [
    ("GET", r"/v1/pets", list_pets),
    ("POST", r"/v1/pets", add_pet),
    ("GET", r"/v1/pets/search", find_pets),
    ("GET", r"/v1/pets/(\d+)", get_pet),
    ("PATCH", r"/v1/pets/(\d+)", change_pet),
    ("DELETE", r"/v1/pets/(\d+)", delete_pet),
    ("POST", r"/v1/pets/(\d+)/photos", upload_photo),
    ("GET", r"/v1/orders", list_orders),
    ("POST", r"/v1/orders", place_order),
    ("GET", r"/v1/orders/(\d+)", get_order),
    ("DELETE", r"/v1/orders/(\d+)", cancel_order),
    ("GET", r"/v1/stock", count_stock),
]


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        try:
            status, value = self.run(url.path, query, body)
        except Problem as problem:
            status, detail = problem.args
            value = {"title": "not done", "detail": detail}
        except (KeyError, TypeError, ValueError) as error:
            status, value = 422, {"title": "not understood", "detail": repr(error)}
        is_document = isinstance(value, str)
        text = b"" if value is None else (value if is_document else json.dumps(value)).encode()
        self.send_response(status)
        if text:
            self.send_header("content-type", "application/yaml" if is_document else "application/json")
        if status != 204:
            self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def run(self, path, query, body):
        if path == "/openapi.yaml":
            return 200, DOCUMENT
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            raise Problem(401, "who are you?")
        for method, pattern, operation in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and method == self.command:
                return operation(int(match[1]) if match.groups() else None, query, body)
        raise Problem(404, "there is no such operation")

    do_GET = do_POST = do_PATCH = do_DELETE = answer


ThreadingHTTPServer(ADDRESS, Shop).serve_forever()
