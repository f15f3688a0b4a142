/** For tests: the command line in this process, against a server that says what it is told to. */
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { CommanderError, InvalidArgumentError } from 'commander';
import type { ProcessEnv } from './config/fuse-home.ts';
import { errorText } from './output/error-text.ts';
import { createProgram } from './program.ts';

export interface Said {
  code: number;
  stdout: string;
  stderr: string;
}

/** What is answered to a request line such as `GET /v1/hosts?limit=1`; a number alone is a status without a body. */
export type Answers = Record<string, number | { status?: number; body: unknown }>;

export interface Heard {
  line: string;
  body: unknown;
  headers: IncomingMessage['headers'];
}

export class AnsweringServer implements AsyncDisposable {
  readonly heard: Heard[] = [];
  answers: Answers = {};
  readonly #server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    const line = `${request.method} ${request.url}`;
    this.heard.push({ line, body: text === '' ? undefined : JSON.parse(text), headers: request.headers });
    const answer = this.answers[line] ?? {
      status: 404,
      body: { error: { code: 'not_found', message: `nothing is said of ${line}` } },
    };
    const { status = 200, body } = typeof answer === 'number' ? { status: answer, body: undefined } : answer;
    response.writeHead(status, { 'x-request-id': 'req_1' });
    response.end(typeof body === 'string' || body === undefined ? body : JSON.stringify(body));
  });

  static async start(): Promise<AnsweringServer> {
    const server = new AnsweringServer();
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve));
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get lines(): string[] {
    return this.heard.map(({ line }) => line);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

export async function fuse(args: readonly string[], env: ProcessEnv): Promise<Said> {
  const out: Uint8Array[] = [];
  const err: Uint8Array[] = [];
  const io = {
    out: async (data: string | Uint8Array) => void out.push(Buffer.from(data)),
    err: async (data: Uint8Array) => void err.push(data),
    say: (line: string) => void err.push(Buffer.from(`${line}\n`)),
    brokenPipe: new AbortController().signal,
    errIsTerminal: false,
  };
  const program = await createProgram({ io, env, argv: args });
  const all = [program];
  for (const command of all) {
    all.push(...command.commands);
    command.exitOverride().configureOutput({
      writeOut: (text) => void out.push(Buffer.from(text)),
      writeErr: (text) => void err.push(Buffer.from(text)),
    });
  }
  let code = 0;
  try {
    await program.parseAsync(args, { from: 'user' });
  } catch (error) {
    if (error instanceof CommanderError && !(error instanceof InvalidArgumentError)) code = error.exitCode;
    else {
      code = 1;
      io.say(errorText(error).replace(/\n$/, ''));
    }
  }
  const text = (chunks: readonly Uint8Array[]) => Buffer.concat(chunks).toString();
  return { code, stdout: text(out), stderr: text(err) };
}
