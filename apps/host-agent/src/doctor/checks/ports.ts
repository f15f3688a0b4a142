/** The ports that Fuse listens on: free, or held by Fuse itself. */
import { connect } from 'node:net';
import { type Check, type Finding, ok, warn } from '../finding.ts';

const ANSWER_TIMEOUT_MS = 2_000;

interface FusePort {
  port: number;
  path: string;
  isOurs(body: unknown): boolean;
  variable: string;
}

const fusePorts = (env: NodeJS.ProcessEnv): readonly FusePort[] => [
  {
    port: Number(env.FUSE_PORT || 8080),
    path: '/v1/version',
    variable: 'FUSE_PORT',
    isOurs: (body) => field(body, 'service') === 'fuse-orchestrator',
  },
  {
    port: Number(env.FUSE_HOST_LISTEN?.split(':').at(-1) || 8090),
    path: '/v1/health',
    variable: 'FUSE_HOST_LISTEN',
    isOurs: (body) => field(body, 'status') === 'ok',
  },
];

export type PortHolder = 'nobody' | 'fuse' | 'another program';

export const portsCheck: Check = {
  name: 'ports',
  async run({ env, signal }) {
    const ports = fusePorts(env).map(async (each) => ({ ...each, holder: await holderOf(each, signal) }));
    return judgePorts(await Promise.all(ports));
  },
};

export function judgePorts(held: readonly { port: number; variable: string; holder: PortHolder }[]): Finding {
  const message = held
    .map(({ port, holder }) => `${port} ${holder === 'nobody' ? 'is free' : `is held by ${holder}`}`)
    .join(', ');
  const taken = held.filter(({ holder }) => holder === 'another program');
  if (taken.length === 0) return ok(message);
  return warn(
    message,
    `end that program (ss -ltnp shows it), or set ${taken.map(({ variable }) => variable).join(' and ')}`,
  );
}

async function holderOf({ port, path, isOurs }: FusePort, signal: AbortSignal): Promise<PortHolder> {
  if (!(await answers(port))) return 'nobody';
  try {
    const timeout = AbortSignal.timeout(ANSWER_TIMEOUT_MS);
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { signal: AbortSignal.any([signal, timeout]) });
    return isOurs(await response.json()) ? 'fuse' : 'another program';
  } catch {
    signal.throwIfAborted();
    return 'another program'; // it listens, and does not speak as ours would
  }
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port, timeout: ANSWER_TIMEOUT_MS });
    const end = (open: boolean) => {
      socket.destroy();
      resolve(open);
    };
    socket.once('connect', () => end(true));
    socket.once('timeout', () => end(true));
    socket.once('error', () => end(false));
  });
}

function field(body: unknown, name: string): unknown {
  return typeof body === 'object' && body !== null ? (body as Record<string, unknown>)[name] : undefined;
}
