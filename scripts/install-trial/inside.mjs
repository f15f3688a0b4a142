/**
 * Runs inside the trial machine: a line of JSON from outside, `{id, script, timeoutMs}`, is a shell script; the answer is a line
 * `{id, code, output}`.
 */
import { spawn } from 'node:child_process';
import { createReadStream, openSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';

const MAX_OUTPUT_BYTES = 1024 * 1024;
const port = openSync(process.argv[2] ?? '', 'r+');

/** @param {{id: number, script: string, timeoutMs: number}} order */
const obey = ({ id, script, timeoutMs }) =>
  new Promise((resolve) => {
    const child = spawn('bash', ['-c', script], { cwd: '/root', stdio: ['ignore', 'pipe', 'pipe'], detached: true });
    let output = '';
    const keep = (/** @type {Buffer} */ bytes) => {
      output = (output + bytes.toString()).slice(-MAX_OUTPUT_BYTES);
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    const late = setTimeout(() => process.kill(-(child.pid ?? 0), 'SIGKILL'), timeoutMs);
    child.on('exit', (code, signal) => {
      clearTimeout(late);
      // What it left running may hold its output open.
      setTimeout(() => resolve(say({ id, code: code ?? signal, output })), 50);
    });
  });

/** @param {object} message */
function say(message) {
  const bytes = Buffer.from(`${JSON.stringify(message)}\n`);
  for (let at = 0; at < bytes.length; ) at += writeSync(port, bytes, at);
}

say({ ready: true });
for await (const line of createInterface({ input: createReadStream('', { fd: port, autoClose: false }) }))
  void obey(JSON.parse(line));
