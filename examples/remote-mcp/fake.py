"""A small MCP server of the newer era, for a first look: `python3 examples/remote-mcp/fake.py`.

Knows a library's books, keeps them in memory, and prints each request.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ADDRESS = ("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 9912)
REVISION = "2026-07-28"

books = {"1": "Robinson Crusoe", "2": "Moby-Dick"}


def tool(name, title, description, properties, **annotations):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "title": title, "description": description, "inputSchema": schema, "annotations": annotations}


TEXT = {"type": "string"}
TOOLS = [
    tool("find_books", "Find books", "Books whose title has these words.", {"words": TEXT}, readOnlyHint=True),
    tool("get_book", "One book", "The book of this number.", {"number": TEXT}, readOnlyHint=True),
    tool("add_book", "Add a book", "Adds a book, and says its number.", {"title": TEXT}, destructiveHint=False),
    tool("remove_book", "Remove a book", "Removes the book of this number for good.", {"number": TEXT}, destructiveHint=True),
]


def call(name, arguments):
    if name == "find_books":
        return {number: title for number, title in books.items() if arguments["words"].lower() in title.lower()}
    if name == "get_book":
        return books[arguments["number"]]
    if name == "add_book":
        number = str(max(map(int, books), default=0) + 1)
        books[number] = arguments["title"]
        return number
    return f"removed {books.pop(arguments['number'])}"


def result(method, params):
    if method == "server/discover":
        server = {"name": "library", "version": "1"}
        return {"supportedVersions": [REVISION], "capabilities": {"tools": {}}, "serverInfo": server, "ttlMs": 0, "cacheScope": "public"}
    if method == "tools/list":
        return {"tools": TOOLS, "ttlMs": 0, "cacheScope": "public"}
    if method == "tools/call":
        try:
            said, is_error = call(params["name"], params.get("arguments", {})), False
        except KeyError as error:
            said, is_error = f"there is no {error}", True
        return {"content": [{"type": "text", "text": json.dumps(said)}], "isError": is_error}
    return None


class Library(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        found = result(message["method"], message.get("params", {}))
        answer = {"jsonrpc": "2.0", "id": message.get("id")}
        if found is None:
            status, answer["error"] = 404, {"code": -32601, "message": "no such method"}
        else:
            status, answer["result"] = 200, {"resultType": "complete", **found}
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


ThreadingHTTPServer(ADDRESS, Library).serve_forever()
