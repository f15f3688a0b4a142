/** One HTTP request to a host agent: its options, its body as it comes, and what a refusal of it means. */
import http from 'node:http';
import https from 'node:https';
import type { Duplex, Readable } from 'node:stream';
import { AppError, ErrorEnvelope } from '@fuse/contract';

export interface HostAddress {
  id: string;
  url: string;
  token: string | null;
  tls?: HostTls | undefined;
  /** In place of the network. */
  connect?: ((options: { allowHalfOpen?: boolean }) => Duplex) | undefined;
}

/** PEM. Undefined: the public authorities, and no certificate of ours. */
export interface HostTls {
  ca: string | undefined;
  cert: string | undefined;
  key: string | undefined;
}

/** As the options of an https agent. */
export const trustOf = ({ tls }: HostAddress) => secureOptionsOf(tls);

export const secureOptionsOf = (tls: HostTls | undefined): { ca?: string; cert?: string; key?: string } => ({
  ...(tls?.ca === undefined ? {} : { ca: tls.ca }),
  ...(tls?.cert === undefined ? {} : { cert: tls.cert }),
  ...(tls?.key === undefined ? {} : { key: tls.key }),
});

export const TOKEN_REFUSED = 'host_token_refused';
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

export interface HostRequest {
  method: string;
  path: string;
  headers: http.OutgoingHttpHeaders;
  signal: AbortSignal;
  /** Without one the connection is this request's own. */
  agent?: http.Agent;
}

export function openRequest(
  host: HostAddress,
  { method, path, headers, signal, agent }: HostRequest,
): http.ClientRequest {
  const url = new URL(host.url);
  const client = url.protocol === 'https:' ? https : http;
  // A socket of one's own may be half closed: tunnels are.
  const own = () => newAgent(host, { keepAlive: false, allowHalfOpen: true } as http.AgentOptions); // handed on to net.connect
  const request = client.request({
    protocol: url.protocol,
    hostname: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port,
    path: `${url.pathname.replace(/\/$/, '')}${path}`,
    method,
    headers: {
      accept: 'application/json',
      ...headers,
      ...(host.token === null ? {} : { authorization: `Bearer ${host.token}` }),
    },
    agent: agent ?? own(),
    signal,
  });
  request.setNoDelay(true);
  return request;
}

export function newAgent(host: HostAddress, options: http.AgentOptions): http.Agent {
  const isSecure = new URL(host.url).protocol === 'https:';
  const agent = isSecure ? new https.Agent({ ...options, ...trustOf(host) }) : new http.Agent(options);
  const { connect } = host;
  return connect === undefined ? agent : Object.assign(agent, { createConnection: connect });
}

export class SourceError extends Error {
  override readonly name = 'SourceError';
}

/**
 * Sends a body as it comes, no faster than the host takes it, until its end, or until there is an answer. The body is not destroyed here,
 * whatever happens: it may be a client's request, which still wants its own answer. One that fails destroys the request with SourceError:
 * the host must not take a part for the whole.
 */
export function sendBody(body: Readable, request: http.ClientRequest): void {
  const onData = (chunk: Buffer) => {
    if (!request.write(chunk)) body.pause();
  };
  const onDrain = () => body.resume();
  const onEnd = () => request.end();
  const fail = (cause?: unknown) => request.destroy(new SourceError('the body of the request failed', { cause }));
  const onClose = () => {
    if (!body.readableEnded) fail();
  };
  const leave = () => {
    body.off('data', onData).off('end', onEnd).off('error', fail).off('close', onClose);
    request.off('drain', onDrain);
  };
  if (body.errored !== null || (body.destroyed && !body.readableEnded)) return void fail(body.errored);
  if (body.readableEnded) return void request.end();
  request.once('response', leave).once('close', leave).on('drain', onDrain);
  body.on('data', onData).once('end', onEnd).once('error', fail).once('close', onClose);
}

export async function readBounded(response: http.IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response) {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES) {
      response.destroy();
      throw new AppError('internal', `a host's answer is over ${MAX_ANSWER_BYTES} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** What an answer that is no success says: the agent's own envelope as it is. */
export function refusal(host: HostAddress, status: number, text: string): AppError {
  if (status === 401 || status === 403)
    return new AppError('internal', `host ${host.id} refuses the token it is registered with`, {
      details: { reason: TOKEN_REFUSED },
    });
  const parsed = ErrorEnvelope.safeParse(parseOrUndefined(text));
  if (parsed.success) {
    const { code, message, details, hint } = parsed.data.error;
    return new AppError(code, message, {
      status,
      ...(details === undefined ? {} : { details }),
      ...(hint === undefined ? {} : { hint }),
    });
  }
  return new AppError('internal', `host ${host.id} answered ${status}`, { cause: text.slice(0, 500) });
}

function parseOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
