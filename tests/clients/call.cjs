// An agent's tools as a TypeScript client sees them: lists them, and calls one.
//
//     CHANDLERY_URL=… CHANDLERY_KEY=… NODE_PATH=… node call.cjs v1|v2|v2-auto \
//         [--tool NAME [--arguments JSON]] [--accept CONTENT]
//
// v1 is @modelcontextprotocol/sdk, v2 is @modelcontextprotocol/client. What is printed is as call.py says.
//
// CommonJS, since only then does Node look into NODE_PATH for packages.

const { parseArgs } = require('node:util')

const url = new URL(process.env.CHANDLERY_URL)
const about = { name: 'chandlery-tests', version: '0' }
const withKey = { requestInit: { headers: { Authorization: `Bearer ${process.env.CHANDLERY_KEY}` } } }

function v1(capabilities, answer) {
  const { Client } = require('@modelcontextprotocol/sdk/client')
  const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js')
  const { ElicitRequestSchema, McpError } = require('@modelcontextprotocol/sdk/types.js')
  const client = new Client(about, { capabilities })
  if (answer) client.setRequestHandler(ElicitRequestSchema, answer)
  const transport = new StreamableHTTPClientTransport(url, withKey)
  return { client, transport, protocol: () => transport.protocolVersion, RpcError: McpError }
}

function v2(capabilities, answer, more) {
  const { Client, ProtocolError, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client')
  const client = new Client(about, { capabilities, ...more })
  if (answer) client.setRequestHandler('elicitation/create', answer)
  const transport = new StreamableHTTPClientTransport(url, withKey)
  return { client, transport, protocol: () => client.getNegotiatedProtocolVersion(), RpcError: ProtocolError }
}

const clients = {
  v1,
  v2,
  'v2-auto': (capabilities, answer) => v2(capabilities, answer, { versionNegotiation: { mode: 'auto' } }),
}

async function run({ positionals: [name], values: { tool, arguments: given, accept } }) {
  const asked = []
  const answer = ({ params }) => {
    asked.push(params.message)
    return { action: 'accept', ...(params.mode === 'url' ? {} : { content: JSON.parse(accept) }) }
  }
  const chosen = accept === undefined ? clients[name]({}) : clients[name]({ elicitation: { form: {}, url: {} } }, answer)
  const { client, transport, protocol, RpcError } = chosen
  await client.connect(transport)
  const { tools } = await client.listTools()
  const seen = { protocol: protocol(), tools: tools.map(({ name }) => name), asked }
  if (tool) {
    try {
      seen.result = await client.callTool({ name: tool, arguments: JSON.parse(given) })
    } catch (error) {
      if (!(error instanceof RpcError)) throw error
      seen.error = { code: error.code, message: error.message }
    }
  }
  console.log(JSON.stringify(seen))
  await client.close()
}

const options = { tool: { type: 'string' }, arguments: { type: 'string', default: '{}' }, accept: { type: 'string' } }
run(parseArgs({ allowPositionals: true, options }))
