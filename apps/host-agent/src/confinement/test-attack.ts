/** For tests: what a VMM that a guest has taken over might try, as a program that runs in its jail. It prints one line an attempt: its name, and the error, or DONE. */
export interface AttackTargets {
  /** Of another VM. */
  otherDirectory: string;
  otherPid: number;
  /** Of the host agent, and a file below it. */
  dataDirectory: string;
  otherRecord: string;
  hostAgentPort: number;
  hostAddresses: readonly string[];
  /** A name that somebody on the host listens at. */
  abstractName: string;
}

export const attackScript = (targets: AttackTargets): string => `
import { spawnSync } from 'node:child_process';
import dgram from 'node:dgram';
import fs from 'node:fs';
import net from 'node:net';
const t = ${JSON.stringify(targets)};
const { O_RDWR, O_WRONLY } = fs.constants;
async function attempt(name, work) {
  try {
    const result = await work();
    console.log(name + ': DONE ' + (result ?? ''));
  } catch (error) {
    console.log(name + ': ' + (error.code ?? error.message));
  }
}
const connect = (where) => new Promise((resolve, reject) => {
  const socket = net.connect(where, () => { socket.destroy(); resolve(); });
  socket.on('error', reject);
});
const write = (path, flags) => { const fd = fs.openSync(path, flags); fs.writeSync(fd, 'x'); };

for (const name of ['run/guest.sock', 'run/qmp.sock'])
  await attempt('connect to its ' + name, () => connect(t.otherDirectory + '/' + name));
for (const name of ['writable.img', 'memory', 'vmm.json', 'cell.json'])
  await attempt('read its ' + name, () => fs.readFileSync(t.otherDirectory + '/' + name).length);
await attempt('read the memory of its process', () => fs.openSync('/proc/' + t.otherPid + '/mem', 'r'));
await attempt('signal its process', () => process.kill(t.otherPid, 0));
await attempt('signal all processes but its own', () => { process.kill(-1, 0); });
await attempt('list the host agent\\'s data', () => fs.readdirSync(t.dataDirectory));
await attempt('read a record of the host agent', () => fs.readFileSync(t.otherRecord, 'utf8'));
await attempt('leave its root', () => fs.readdirSync('/../../../../' + t.dataDirectory));
for (const path of ['/etc/passwd', '/etc/shadow', '/proc/self/status', '/sys/kernel', '/root', '/run/fuse', '/tmp', '/dev/mem', '/dev/vda', '/dev/kmsg'])
  await attempt('reach ' + path, () => fs.statSync(path).mode);

await attempt('write shared memory, opened for writing', () => write('/memory', O_WRONLY));
await attempt('write shared memory, opened for both', () => write('/memory', O_RDWR));
await attempt('cut shared memory off', () => fs.truncateSync('/memory', 0));
await attempt('give itself the right to shared memory', () => fs.chmodSync('/memory', 0o666));
await attempt('write the image', () => write('/image', O_RDWR));
await attempt('replace the image', () => fs.unlinkSync('/image'));
await attempt('write the program that it is', () => write(process.execPath, O_RDWR));
await attempt('write its root', () => fs.mkdirSync('/new'));
await attempt('write beside its run directory', () => fs.writeFileSync('/vm/new', ''));
await attempt('list its machine', () => fs.readdirSync('/vm'));
await attempt('read its cell', () => fs.readFileSync('/vm/cell.json'));
await attempt('replace its run directory', () => fs.renameSync('/vm/run', '/vm/other'));
await attempt('give away its disk', () => fs.chownSync('/disk', 0, 0));
await attempt('link its disk into its run directory', () => fs.linkSync('/disk', '/vm/run/disk'));

for (const host of ['127.0.0.1', '::1', ...t.hostAddresses])
  await attempt('connect to the host agent at ' + host, () => connect({ host, port: t.hostAgentPort }));
await attempt('listen on a port', () => new Promise((resolve, reject) => net.createServer().on('error', reject).listen(0, '127.0.0.1', resolve)));
await attempt('send a datagram', () => new Promise((resolve, reject) => dgram.createSocket('udp4').on('error', reject).send('x', 53, '127.0.0.1', (error) => error ? reject(error) : resolve())));
await attempt('connect to a name of the host', () => connect({ path: '\\0' + t.abstractName }));

await attempt('become root', () => { process.setuid(0); });
await attempt('become another VMM', () => { process.setgid(process.getgid() + 1); });
await attempt('remove what it has written', () => { fs.writeFileSync('/vm/run/hidden', ''); fs.unlinkSync('/vm/run/hidden'); });
await attempt('run a program of its own', () => {
  fs.writeFileSync('/vm/run/program', '#!/usr/bin/env node', { mode: 0o755 });
  const { error } = spawnSync('/vm/run/program');
  if (error) throw error;
});
await attempt('have more files open than it may', () => { for (let n = 0; n < 1000; n++) fs.openSync('/dev/null'); });
process.exit(0);
`;
