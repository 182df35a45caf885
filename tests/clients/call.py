"""An agent's tools as a Python client sees them: lists them, and calls one.

    CHANDLERY_URL=… CHANDLERY_KEY=… python call.py CLIENT [--tool NAME [--arguments JSON]] [--accept CONTENT]

CLIENT is mcp, mcp-legacy or fastmcp. Prints one line of JSON: `protocol`, the version that was agreed on; `tools`, their
names; with --tool either `result` or `error` (`code` and `message`); and `asked`, the messages of what the server asked
the user. --accept says that there is a user, who accepts whatever is asked, with this JSON object as the content of a
form.
"""

import argparse
import asyncio
import json
import os

from mcp import Client, MCPError
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.types import ElicitResult

URL, KEY = os.environ["CHANDLERY_URL"], os.environ["CHANDLERY_KEY"]


# A callback for questions is what makes a client declare elicitation: there is one only if there is a user.


def mcp(mode, user):
    async def on_question(_context, params):
        return user(params)

    http = create_mcp_http_client(headers={"Authorization": f"Bearer {KEY}"})
    transport = streamable_http_client(URL, http_client=http)
    return Client(transport, mode=mode, elicitation_callback=on_question if user else None)


def fastmcp(user):
    # Here, since it takes its time and the others do without.
    from fastmcp import Client

    async def on_question(_message, _response_type, params, _context):
        return user(params)

    return Client(URL, auth=KEY, elicitation_handler=on_question if user else None)


CLIENTS = {
    "mcp": lambda user: mcp("auto", user),
    "mcp-legacy": lambda user: mcp("legacy", user),
    "fastmcp": fastmcp,
}


async def run(options):
    asked = []

    def user(params):
        asked.append(params.message)
        return ElicitResult(action="accept", content=options.accept if params.mode == "form" else None)

    async with CLIENTS[options.client](None if options.accept is None else user) as client:
        tools = await client.list_tools()
        # One gives the whole answer, the other what is in it.
        tools = [tool.name for tool in getattr(tools, "tools", tools)]
        seen = {"protocol": client.protocol_version, "tools": tools, "asked": asked}
        if options.tool:
            call = getattr(client, "call_tool_mcp", client.call_tool)
            try:
                result = await call(options.tool, options.arguments)
                seen["result"] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            except MCPError as error:
                seen["error"] = {"code": error.code, "message": error.message}
        print(json.dumps(seen))


parser = argparse.ArgumentParser()
parser.add_argument("client", choices=CLIENTS)
parser.add_argument("--tool")
parser.add_argument("--arguments", type=json.loads, default={})
parser.add_argument("--accept", type=json.loads)
asyncio.run(run(parser.parse_args()))
