/** Files of a running environment through the public API: every size and name, hostile guests, full disks, cut streams. */
import { createHash, randomBytes, randomInt } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cuttingProxy } from './support/cutting-proxy.ts';
import { FilesApi, sha256 } from './support/files-api.ts';
import { Guest } from './support/life.ts';
import { LocalStack } from './support/local-stack.ts';
import { mostMemoryMiB } from './support/memory.ts';

const MIB = 1_048_576;
const UPLOAD_MIB = 96;
const ROUNDS = 30;

let stack: LocalStack;
let files: FilesApi;
let guest: Guest;

beforeAll(async () => {
  stack = await LocalStack.up();
  ({ files, guest } = await environment('files', 4));
}, 180_000);
afterAll(() => stack?.[Symbol.asyncDispose](), 60_000);

async function environment(task_id: string, storage_gb: number) {
  const { id } = await stack.client.environments.create({ task_id, spec: { cpus: 1, ram_mb: 256, storage_gb } });
  return { files: new FilesApi(stack, id), guest: new Guest(stack.client, id) };
}

describe('bytes', () => {
  const sizes = [
    0,
    1,
    4_096,
    16_383,
    16_384,
    16_385,
    65_535,
    65_536,
    65_537,
    MIB,
    32 * MIB - 1,
    32 * MIB,
    32 * MIB + 1,
  ];
  it.each(sizes)('%i of them arrive and come back whole', async (size) => {
    const bytes = randomBytes(size);
    const path = `/workspace/sizes/${size}`;
    const written = await files.put(path, bytes);
    expect(written.status).toBe(201);
    expect(written.json).toEqual({ path, size_bytes: size, sha256: sha256(bytes) });
    expect((await guest.sh(`sha256sum < ${path}`)).split(' ')[0]).toBe(sha256(bytes));
    const read = await files.get(path);
    expect([read.status, read.headers['content-length']]).toEqual([200, String(size)]);
    expect(sha256(read.bytes)).toBe(sha256(bytes));
  });

  it('1 GiB streams out, and much in, with flat memory', async () => {
    await guest.sh(
      'rm -rf /workspace/sizes; truncate -s 1G /workspace/sparse; printf end | dd of=/workspace/sparse bs=1 seek=1073741821 conv=notrunc 2>/dev/null',
    );
    const memory = mostMemoryMiB(stack.pid);
    const response = await files.open('GET', files.path('files', { path: '/workspace/sparse' }));
    const sum = createHash('sha256');
    let received = 0;
    for await (const chunk of response) {
      sum.update(chunk);
      received += chunk.length;
    }
    expect(received).toBe(1_073_741_824);
    const expected = createHash('sha256');
    const zeros = Buffer.alloc(MIB);
    for (let at = 0; at < 1_023; at += 1) expected.update(zeros);
    expected.update(zeros.subarray(3)).update('end');
    expect(sum.digest('hex')).toBe(expected.digest('hex'));
    await guest.sh('rm /workspace/sparse');

    const block = randomBytes(MIB);
    const total = createHash('sha256');
    const source = Readable.from(
      (function* () {
        for (let at = 0; at < UPLOAD_MIB; at += 1) {
          total.update(block);
          yield block;
        }
      })(),
      { objectMode: false },
    );
    const written = await files.put('/workspace/large', source);
    expect(written.json).toMatchObject({ size_bytes: UPLOAD_MIB * MIB, sha256: total.digest('hex') });
    await guest.sh('rm /workspace/large');
    expect(memory.stop()).toBeLessThan(160);
  }, 600_000);

  it('come in parts', async () => {
    const bytes = randomBytes(100_000);
    await files.put('/workspace/parts', bytes);
    for (const [range, start, end] of [
      ['bytes=0-0', 0, 1],
      ['bytes=65530-70000', 65_530, 70_001],
      ['bytes=99999-', 99_999, 100_000],
      ['bytes=-10', 99_990, 100_000],
      ['bytes=50000-999999', 50_000, 100_000],
    ] as const) {
      const part = await files.get('/workspace/parts', { range });
      expect([part.status, part.headers['content-range']]).toEqual([206, `bytes ${start}-${end - 1}/100000`]);
      expect(part.bytes.equals(bytes.subarray(start, end)), range).toBe(true);
    }
    const none = await files.get('/workspace/parts', { range: 'bytes=100000-' });
    expect([none.status, none.headers['content-range']]).toEqual([416, 'bytes */100000']);
    const head = await files.send('HEAD', files.path('files', { path: '/workspace/parts' }));
    expect([head.status, head.headers['content-length'], head.bytes.length]).toEqual([200, '100000', 0]);
  });
});

describe('names', () => {
  const every = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  const names = [
    '-rf',
    '--',
    ' a b ',
    'two\nlines',
    `it's "q"`,
    '$(reboot)`id`;&|<>*?[x]{a}~#!%2e',
    'back\\slash',
    'é'.normalize('NFC'),
    'é'.normalize('NFD'),
    '😀',
    'x'.repeat(255),
    '...',
    '\u0001\u007f',
    'a:b',
  ];

  it('of every kind are told apart, and kept', async () => {
    for (const [at, name] of names.entries()) {
      const content = Buffer.concat([every, Buffer.from(String(at))]);
      const written = await files.put(`/workspace/names/${name}`, content);
      expect(written.json, JSON.stringify(name)).toMatchObject({ size_bytes: content.length, sha256: sha256(content) });
    }
    for (const [at, name] of names.entries())
      expect(
        (await files.get(`/workspace/names/${name}`)).bytes.equals(Buffer.concat([every, Buffer.from(String(at))])),
      ).toBe(true);
    type Listed = { entries: { name: string; path: string; type: string; size_bytes: number }[]; truncated: boolean };
    const { entries, truncated } = await files.operate<Listed>('list', { path: '/workspace/names' });
    expect(truncated).toBe(false);
    expect(entries.map((entry) => entry.name).sort()).toEqual([...names].sort());
    expect(await guest.sh('ls -A /workspace/names | wc -l; ls -A /workspace')).not.toContain('.fuse');
  });

  it.each(['relative', '', '/a\0b', `/${'x'.repeat(4_096)}`])('that are none are refused: %.20s', async (path) => {
    for (const answer of [await files.get(path), await files.put(path, every)])
      expect([answer.status, answer.json.error.details]).toEqual([400, { field: 'path' }]);
  });

  it('that cannot be are a conflict or too long, never more', async () => {
    const long = await files.put(`/workspace/${'x'.repeat(256)}`, every);
    expect([400, 409]).toContain(long.status);
    await files.put('/workspace/file', every);
    expect((await files.put('/workspace/file/below', every)).json.error.details).toMatchObject({
      reason: 'not_a_directory',
    });
    expect((await files.put('/workspace', every)).json.error.details).toMatchObject({ reason: 'is_a_directory' });
    expect((await files.get('/workspace')).json.error.details).toMatchObject({ reason: 'not_a_regular_file' });
    expect((await files.get('/dev/null')).json.error.details).toMatchObject({ reason: 'not_a_regular_file' });
    expect((await files.get('/workspace/none')).status).toBe(404);
  });
});

describe('owner and mode', () => {
  const owns = (path: string) => guest.sh(`stat -c '%a %u %g' ${path}`).then((text) => text.trim());

  it('are those given, and stay when a file is replaced', async () => {
    await files.put('/workspace/owned', Buffer.from('1'), { mode: '4751', uid: '1234', gid: '55' });
    expect(await owns('/workspace/owned')).toBe('4751 1234 55');
    await files.put('/workspace/owned', Buffer.from('22'));
    expect(await owns('/workspace/owned')).toBe('4751 1234 55');
    await files.put('/workspace/owned', Buffer.from('333'), { mode: '0600', user: 'nobody' });
    expect(await owns('/workspace/owned')).toMatch(/^600 65534 \d+$/);
    const head = await files.send('HEAD', files.path('files', { path: '/workspace/owned' }));
    expect(head.headers).toMatchObject({ 'fuse-file-mode': '0600', 'fuse-file-uid': '65534' });
    await files.put('/workspace/plain', Buffer.from('x'));
    expect(await owns('/workspace/plain')).toBe('644 0 0');
    expect((await files.put('/workspace/plain', Buffer.from('x'), { user: 'nosuchuser' })).status).toBe(400);
    expect(
      (await files.put('/workspace/plain', Buffer.from('x'), { exclusive: '1' })).json.error.details,
    ).toMatchObject({
      reason: 'exists',
    });
  });
});

describe('a guest that plants symlinks', () => {
  it('reaches its own files alone', async () => {
    const hostFile = `${stack.home}/token`;
    const before = await readFile(hostFile, 'utf8');
    await guest.sh(`mkdir -p /workspace/planted && cd /workspace/planted
      ln -s ${hostFile} file; ln -s ${stack.home} directory; ln -s / root; ln -s ../../../../../../etc up; ln -s loop loop; ln -s /etc/hostname name`);
    for (const path of ['file', 'directory/token', 'root/proc/1/root/../../../../tmp/x', 'loop']) {
      const read = await files.get(`/workspace/planted/${path}`);
      expect(read.status, path).toBeGreaterThanOrEqual(400);
      expect(read.bytes.includes(before.trim())).toBe(false);
    }
    expect((await files.get('/workspace/planted/name')).bytes.toString()).toBe(await guest.sh('cat /etc/hostname'));
    // Written through, inside the guest.
    for (const path of ['file', 'directory/token', 'root/written', 'up/written'])
      await files.put(`/workspace/planted/${path}`, Buffer.from('by the guest’s choice'));
    expect(await readFile(hostFile, 'utf8')).toBe(before);
    await expect(readFile('/written')).rejects.toThrow();
    await expect(readFile('/etc/written')).rejects.toThrow();
    expect(await guest.sh('cat /written /etc/written')).toBe('by the guest’s choice'.repeat(2));
    type Info = { type: string; target?: string };
    expect(await files.operate<Info>('stat', { path: '/workspace/planted/up' })).toMatchObject({
      type: 'symlink',
      target: '../../../../../../etc',
    });
  });
});

describe('replacing', () => {
  it('is seen whole: the old one or the new one', async () => {
    const versions = [randomBytes(2 * MIB), randomBytes(3 * MIB)];
    const sums = versions.map((bytes) => sha256(bytes));
    await files.put('/workspace/atomic', versions[0] ?? Buffer.alloc(0));
    const watching = guest.sh(
      'for i in $(seq 40); do sha256sum < /workspace/atomic; done | cut -d" " -f1 | sort | uniq -c',
      120_000,
    );
    let done = false;
    void watching.finally(() => {
      done = true;
    });
    for (let at = 1; !done; at += 1) await files.put('/workspace/atomic', versions[at % 2] ?? Buffer.alloc(0));
    const seen = (await watching)
      .trim()
      .split('\n')
      .map((line) => line.trim().split(' ')[1] ?? '');
    for (const sum of seen) expect(sums).toContain(sum);
  });
});

describe('a disk that is full', () => {
  it('refuses an upload, a copy and a tar cleanly, and the environment lives on', async () => {
    const small = await environment('small', 1);
    // But for what there is of its commands, and the database.
    const entries = async () =>
      (await readdir(stack.home, { recursive: true })).filter((name) => !/postgres|execs/.test(name)).sort();
    const before = await entries();
    await small.guest.sh(
      'fallocate -l $(($(df --output=avail -B1 /workspace | tail -1) - 60000000)) /workspace/filling',
    );
    const tooMuch = () => {
      const block = randomBytes(MIB);
      let left = 100;
      return new Readable({
        read() {
          this.push(left-- > 0 ? block : null);
        },
      });
    };
    const refused = await small.files.put('/workspace/too-much', tooMuch());
    expect([refused.status, refused.json.error.details.reason]).toEqual([409, 'no_space']);
    expect(refused.json.error.hint).toContain('storage_gb');
    await small.guest.sh('[ "$(ls -A /workspace)" = filling ]');
    await small.guest.sh('mkdir /workspace/more && head -c 35000000 /dev/zero > /workspace/more/half');
    const copied = await small.files.refusal('copy', { from: '/workspace/more/half', to: '/workspace/other-half' });
    expect([copied.status, copied.details.reason]).toEqual([409, 'no_space']);
    const tar = await small.files.send('GET', small.files.path('tar', { path: '/workspace/more' }));
    await small.guest.sh('cat /dev/zero > /workspace/rest || true');
    const extracted = await small.files.send('PUT', small.files.path('tar', { path: '/workspace/tar' }), tar.bytes);
    expect([extracted.status, extracted.json.error.details.reason]).toEqual([409, 'no_space']);
    await small.guest.sh(
      'rm /workspace/rest; [ "$(ls -A /workspace | grep -vx tar | tr "\\n" " ")" = "filling more " ]',
    );
    expect((await small.files.put('/workspace/fits', Buffer.from('x'))).status).toBe(201);
    await expect.poll(entries, { timeout: 10_000 }).toEqual(before);
    await stack.client.environments.destroy(small.guest.id);
  }, 300_000);
});

describe('operations', () => {
  it('do what POSIX tools do', async () => {
    await files.operate('mkdir', { path: '/workspace/ops/a/b', parents: true, mode: '0750', user: 'nobody' });
    await files.put('/workspace/ops/a/f.txt', Buffer.from('one\ntwo\nthree\n'));
    await files.operate('symlink', { path: '/workspace/ops/link', target: 'a/f.txt' });
    await files.operate('copy', { from: '/workspace/ops/a', to: '/workspace/ops/c', recursive: true });
    await files.operate('move', { from: '/workspace/ops/c', to: '/workspace/ops/d' });
    await files.operate('chmod', { path: '/workspace/ops/d/f.txt', mode: '0400' });
    await files.operate('chown', { path: '/workspace/ops/d', uid: 7, gid: 8, recursive: true });
    expect(await guest.sh("cd /workspace/ops; stat -c '%n %a %u %F' a/b d d/f.txt link; readlink link")).toBe(
      'a/b 750 65534 directory\nd 755 7 directory\nd/f.txt 400 7 regular file\nlink 777 0 symbolic link\na/f.txt\n',
    );
    type Found = { entries: { path: string }[] };
    const found = await files.operate<Found>('glob', { cwd: '/workspace/ops', patterns: ['**/*.txt'] });
    expect(found.entries.map(({ path }) => path.replace('/workspace/ops/', '')).sort()).toEqual(['a/f.txt', 'd/f.txt']);
    type Matches = { matches: { path: string; line: number; column: number; text: string }[] };
    const { matches } = await files.operate<Matches>('search', { path: '/workspace/ops/a', pattern: 't(w|h)' });
    expect(matches).toMatchObject([
      { path: '/workspace/ops/a/f.txt', line: 2, column: 1, text: 'two' },
      { line: 3, column: 1, text: 'three' },
    ]);
    const edit = (old_text: string, new_text: string) => ({
      path: '/workspace/ops/a/f.txt',
      edits: [{ old_text, new_text }],
    });
    expect(await files.operate('edit', edit('two', '2'))).toMatchObject({ replacements: 1 });
    expect(await files.refusal('edit', edit('two', '2'))).toMatchObject({
      status: 409,
      details: { reason: 'no_match' },
    });
    expect(await files.refusal('edit', edit('e', 'E'))).toMatchObject({
      status: 409,
      details: { reason: 'ambiguous' },
    });
    const patch = '--- a/a/f.txt\n+++ b/a/f.txt\n@@ -1,3 +1,3 @@\n one\n-2\n+zwei\n three\n';
    expect(await files.operate('patch', { cwd: '/workspace/ops', patch })).toMatchObject({
      files: [{ action: 'modified' }],
    });
    expect(await files.refusal('patch', { cwd: '/workspace/ops', patch })).toMatchObject({
      status: 409,
      details: { reason: 'stale_patch' },
      hint: expect.any(String),
    });
    expect((await files.get('/workspace/ops/link')).bytes.toString()).toBe('one\nzwei\nthree\n');
    expect(await files.refusal('remove', { path: '/workspace/ops' })).toMatchObject({
      details: { reason: 'not_empty' },
    });
    await files.operate('remove', { path: '/workspace/ops', recursive: true });
    expect(await files.refusal('stat', { path: '/workspace/ops' })).toMatchObject({ status: 404, code: 'not_found' });
  });
});

describe('a tar', () => {
  it('of a tree goes out and in again as it was', async () => {
    await guest.sh(`mkdir -p /workspace/tree/deep/er && cd /workspace/tree
      head -c 3000000 /dev/urandom > deep/er/large; echo x > 'a b'; echo y > "$(printf 'new\\nline')"; : > empty
      chmod 4711 empty; chown 12:34 'a b'; ln -s deep/er/large link; ln -s nowhere broken; ln empty hard; mkfifo pipe; mkdir -m 1777 sticky`);
    const out = await files.send('GET', files.path('tar', { path: '/workspace/tree' }));
    expect([out.status, out.headers['content-type']]).toEqual([200, 'application/x-tar']);
    const put = await files.send('PUT', files.path('tar', { path: '/workspace/again' }), out.bytes);
    expect(put.status, put.bytes.toString()).toBe(200);
    const list = (directory: string) =>
      guest.sh(
        `cd ${directory} && find . ! -name pipe -printf '%P|%y|%m|%U|%G|%l|%n\\n' | sort; find . -type f -exec sha256sum {} + | sort`,
      );
    expect(await list('/workspace/again')).toBe(await list('/workspace/tree'));
    const owned = await files.send(
      'PUT',
      files.path('tar', { path: '/workspace/owned-tree', uid: '5', gid: '6' }),
      out.bytes,
    );
    expect(owned.status).toBe(200);
    expect((await guest.sh("find /workspace/owned-tree -mindepth 1 -printf '%U:%G\\n' | sort -u")).trim()).toBe('5:6');
  });

  it('that was cut is an error, and what is no tar is refused', async () => {
    const out = await files.send('GET', files.path('tar', { path: '/workspace/tree' }));
    for (const bytes of [out.bytes.subarray(0, 100_000), randomBytes(50_000)]) {
      const put = await files.send('PUT', files.path('tar', { path: '/workspace/bad' }), bytes);
      expect([put.status, put.json.error.code]).toEqual([400, 'invalid_argument']);
    }
    expect((await files.send('GET', files.path('tar', { path: '/workspace/none' }))).status).toBe(404);
  });
});

describe('a watch', () => {
  it('tells of what happens below, and ends with what it watches', async () => {
    await guest.sh('mkdir -p /workspace/watched/deep');
    const response = await files.open('GET', files.path('files/watch', { path: '/workspace/watched', recursive: '1' }));
    expect(response.statusCode).toBe(200);
    let text = '';
    for await (const chunk of response) {
      const first = text === '';
      text += chunk;
      if (first)
        void guest.sh(
          'cd /workspace/watched; echo 1 > deep/a; mv deep/a deep/b; mkdir new; sleep 0.3; echo 2 > new/c; rm deep/b; cd /; rm -r /workspace/watched',
        );
    }
    const events = text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { type: string; path?: string });
    expect(events[0]).toEqual({ type: 'ready' });
    for (const expected of [
      { type: 'created', path: '/workspace/watched/deep/a' },
      { type: 'modified', path: '/workspace/watched/deep/a' },
      { type: 'moved_from', path: '/workspace/watched/deep/a' },
      { type: 'moved_to', path: '/workspace/watched/deep/b' },
      { type: 'created', path: '/workspace/watched/new' },
      { type: 'removed', path: '/workspace/watched/deep/b' },
    ])
      expect(events).toContainEqual(expect.objectContaining(expected));
    expect(events.at(-1)).toMatchObject({ type: 'removed', path: '/workspace/watched' });
  });
});

describe('connections that break anywhere', () => {
  it('leave bytes identical, or an error: never fewer', async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      const size = randomInt(0, round % 5 === 0 ? 3 * MIB : 200_000);
      const old = randomBytes(randomInt(0, 1_000));
      const bytes = randomBytes(size);
      await files.put('/workspace/broken', old);
      await using proxy = await cuttingProxy(stack.port, randomInt(2) === 0 ? undefined : randomInt(0, size + 400));
      const source = Readable.from(chunksOf(bytes), { objectMode: false });
      const written = await files
        .send('PUT', files.path('files', { path: '/workspace/broken' }), source, {}, proxy.port)
        .catch(() => undefined);
      if (written !== undefined) expect(written.json).toMatchObject({ size_bytes: size, sha256: sha256(bytes) });
      const now = (await files.get('/workspace/broken')).bytes;
      const acceptable = written === undefined ? [sha256(old), sha256(bytes)] : [sha256(bytes)];
      expect(acceptable, `round ${round}`).toContain(sha256(now));

      await files.put('/workspace/broken', bytes);
      await using cut = await cuttingProxy(
        stack.port,
        undefined,
        randomInt(2) === 0 ? undefined : randomInt(0, size + 400),
      );
      const path = files.path('files', { path: '/workspace/broken' });
      const read = await files.send('GET', path, undefined, {}, cut.port).catch(() => undefined);
      if (read !== undefined) expect(read.bytes.equals(bytes), `round ${round}`).toBe(true);
    }
    await expect.poll(() => guest.sh('ls -A /workspace | grep -c "^\\.fuse" || true'), { timeout: 20_000 }).toBe('0\n');
  }, 600_000);

  it('because the VM died are told within moments', async () => {
    const others = new Set(await stack.vmmPids());
    const doomed = await environment('doomed', 2);
    await doomed.guest.sh('truncate -s 1G /workspace/sparse');
    const response = await doomed.files.open('GET', doomed.files.path('files', { path: '/workspace/sparse' }));
    const source = new Readable({ read() {} });
    source.push(randomBytes(100_000));
    const upload = doomed.files.put('/workspace/up', source);
    upload.catch(() => {});
    await new Promise((resolve) => response.once('data', resolve));
    for (const pid of await stack.vmmPids()) if (!others.has(pid)) process.kill(pid, 'SIGKILL');
    await expect(response.resume().toArray()).rejects.toThrow();
    expect((await upload).json.error).toMatchObject({ code: 'vm_lost' });
    const gone = () =>
      stack.client.environments.get(doomed.guest.id).then(
        ({ state }) => state,
        ({ code }) => code,
      );
    await expect.poll(gone, { timeout: 30_000 }).toBe('not_found');
  });
});

function* chunksOf(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length; ) {
    const size = randomInt(1, 100_000);
    yield bytes.subarray(at, at + size);
    at += size;
  }
}
