/** Tries a batch inside a VM, and holds what came of it against what was to come. One line is printed for each attempt. */
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { type SmallInternet, world } from '@fuse/testing';
import { expect } from 'vitest';
import type { Guest } from '../support/life.ts';
import type { Batch } from './attempts.ts';

interface Result {
  name: string;
  outcome: string;
  ms: number;
}
const PROGRAM = fileURLToPath(new URL('attempts.py', import.meta.url));
const BATCH_LIMIT_MS = 240_000;

export async function arm(guest: Guest, internet: SmallInternet): Promise<void> {
  await guest.write('/tmp/attempts.py', await readFile(PROGRAM, 'utf8'));
  await guest.write('/tmp/ca.pem', internet.ca);
}

/** Of one call of attempts.py. */
export async function tryOne(guest: Guest, code: string): Promise<string> {
  return (await tryAll(guest, [{ name: code, code }]))[0]?.outcome ?? 'it says nothing';
}

async function tryAll(guest: Guest, batch: object[]): Promise<Result[]> {
  await guest.write('/tmp/batch.json', JSON.stringify(batch));
  const said = await guest.sh('python3 /tmp/attempts.py /tmp/batch.json', BATCH_LIMIT_MS);
  return said
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Result); // our own program's
}

const fits = {
  refused: /^refused/,
  unheard: /^(refused|silence)/,
  here: /^reached/,
  reached: /^reached/,
  either: /^/,
} as const;

/** Returns how many attempts there were. */
export async function attack(guest: Guest, internet: SmallInternet, batch: Batch): Promise<number> {
  await internet.forget();
  const order = batch.attempts.map(([name, code, , alone]) => ({ name, code, alone: alone !== undefined }));
  const results = new Map((await tryAll(guest, order)).map((result) => [result.name, result]));
  const wrong: string[] = [];
  for (const [name, code, wanted = 'refused'] of batch.attempts) {
    const { outcome, ms } = results.get(name) ?? { outcome: 'it says nothing', ms: 0 };
    const [verdict = '', ...why] = outcome.split(': ');
    process.stdout.write(
      `${verdict.padEnd(8)} ${name} · ${batch.under} · ${ms} ms${why.length === 0 ? '' : ` · ${why.join(': ')}`}\n`,
    );
    if (!fits[wanted].test(outcome)) wrong.push(`${name} is to be ${wanted}: ${outcome} (${code})`);
  }
  expect(wrong).toEqual([]);
  await expectLeft(internet, batch.leaves);
  return batch.attempts.length;
}

/** Packets on the wire as well as what servers saw. */
async function expectLeft(internet: SmallInternet, may: Batch['leaves']): Promise<void> {
  const [flows, served, queries] = [await internet.flows(), await internet.connections(), await internet.queries()];
  if (may === 'nothing') expect(queries).toEqual([]);
  expect(queries.filter(({ type }) => type !== 'A' && type !== 'AAAA')).toEqual([]);
  const lookUps = [`${world.resolver} udp 53`, `${world.resolver} tcp 53`];
  const allowed = [`${world.web} tcp `, `${world.web6} tcp `, `${world.other} tcp 8080`];
  const goals = {
    nothing: [],
    'look-ups': lookUps,
    connections: [...lookUps, ...allowed],
    requests: [...lookUps, ...allowed],
  };
  expect(flows.filter((flow) => !goals[may].some((goal) => flow.startsWith(goal)))).toEqual([]);
  const allowedRequest = ({ service, path = '' }: { service: string; path?: string | undefined }) =>
    may === 'requests' && (service === 'banner' || /^\/(ok|to\/)/.test(path));
  expect(served.filter((each) => !allowedRequest(each))).toEqual([]);
}
