/**
 * The process that starts the host agent's children. fork() copies the page tables of its caller, so its caller should be small: this
 * script imports nothing and holds nothing. src/vmm/spawner.ts starts it, talks to it over Node's IPC and describes the messages.
 *
 * It ends when the host agent is gone, however that happens: the channel closes. Sessions of their own (VMMs) live on, the rest is killed.
 */
import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';

const MAX_STDERR_LENGTH = 4_096;
const MAX_STDOUT_LENGTH = 16_777_216;

/** @type {Map<number, {child: import('node:child_process').ChildProcess, session: boolean}>} */
const children = new Map();

process.on('message', (message) => {
  if (message.kill === undefined) start(message);
  else children.get(message.kill)?.child.kill('SIGKILL');
});
process.on('disconnect', () => {
  for (const { child, session } of children.values()) if (!session) child.kill('SIGKILL');
  process.exit();
});

function start({ id, program, args, cwd, env, session, stdio }) {
  /** @type {number[]} */
  const opened = [];
  try {
    const descriptors = stdio.map((each) => {
      if (typeof each === 'string') return each;
      const descriptor = openSync(each.path, each.flags);
      opened.push(descriptor);
      return descriptor;
    });
    const child = spawn(program, args, { cwd, env, detached: session, stdio: descriptors });
    child.on('error', (error) => {
      if (child.pid === undefined) tell({ id, failed: error.message });
    });
    if (child.pid === undefined) return;
    children.set(id, { child, session });
    let [stdout, stderr] = ['', ''];
    child.stdout?.setEncoding('utf8').on('data', (text) => {
      stdout += text;
      if (stdout.length > MAX_STDOUT_LENGTH) child.kill('SIGKILL');
    });
    child.stderr?.setEncoding('utf8').on('data', (text) => {
      stderr = (stderr + text).slice(0, MAX_STDERR_LENGTH);
    });
    child.once('close', (code, signal) => {
      children.delete(id);
      tell({ id, code, signal, stdout, stderr });
    });
    tell({ id, pid: child.pid });
  } catch (error) {
    tell({ id, failed: error.message });
  } finally {
    for (const descriptor of opened) closeSync(descriptor);
  }
}

function tell(message) {
  process.send?.(message, () => {}); // the host agent may be gone; `disconnect` says so
}
