/**
 * Something that can be told from a copy of it and from a fresh start: in a guest, a Python process that counts in a loop and answers on one open
 * TCP connection, the process at its other end, an SQLite database in WAL mode that is written all the time, and a file in memory.
 */
import type { FuseClient } from '@fuse/sdk';
import { expect } from 'vitest';

const LIFE = `
import os, socket, sqlite3, sys, threading, time

def count_and_answer():
    count, nonce = 0, os.urandom(8).hex()
    server = socket.create_server(('127.0.0.1', 7000))
    def answer():
        connection, _ = server.accept()
        asked, answers = connection.makefile('r'), connection.makefile('w')
        for sequence, _ in enumerate(asked, 1):
            answers.write(f'{nonce} {sequence} {count}\\n')
            answers.flush()
    threading.Thread(target=answer, daemon=True).start()
    while True:
        count += 1
        time.sleep(0.02)

def hold_connection():
    connection = socket.create_connection(('127.0.0.1', 7000))
    answers = connection.makefile('r')
    door = socket.socket(socket.AF_UNIX)
    door.bind('/run/life.socket')
    door.listen(64)
    while True:
        visitor, _ = door.accept()
        connection.sendall(b'ask\\n')
        visitor.sendall(answers.readline().encode())
        visitor.close()

def write_rows():
    db = sqlite3.connect('/workspace/life.db', isolation_level=None)
    db.execute('pragma journal_mode = wal')
    db.execute('create table a (i integer primary key, filling blob)')
    db.execute('create table b (i integer primary key)')
    i = 0
    while True:
        i += 1
        db.execute('begin')
        db.execute('insert into a values (?, randomblob(500))', (i,))
        db.execute('insert into b values (?)', (i,))
        db.execute('commit')
        time.sleep(0.02)

{'count': count_and_answer, 'hold': hold_connection, 'write': write_rows}[sys.argv[1]]()
`;

const LOOK = `
import json, socket, sqlite3
visitor = socket.socket(socket.AF_UNIX)
visitor.connect('/run/life.socket')
nonce, sequence, count = visitor.makefile('r').readline().split()
db = sqlite3.connect('/workspace/life.db', timeout=30)
a, b, last = db.execute('select (select count(*) from a), (select count(*) from b), (select max(i) from a)').fetchone()
whole = db.execute('pragma integrity_check').fetchone()[0]
print(json.dumps({
    'nonce': nonce, 'sequence': int(sequence), 'count': int(count), 'rows': last,
    'database': 'whole' if whole == 'ok' and a == b == last else f'{whole} {a} {b} {last}',
    'inMemory': open('/dev/shm/kept').read(),
}))
`;

export interface Life {
  /** Of the counting process: drawn once, when it starts. */
  nonce: string;
  /** How often it was asked on its one connection. */
  sequence: number;
  count: number;
  rows: number;
  database: string;
  inMemory: string;
}

export class Guest {
  readonly #client: FuseClient;
  readonly id: string;

  constructor(client: FuseClient, id: string) {
    this.#client = client;
    this.id = id;
  }

  /** Output of a command that succeeds. */
  async sh(shell: string, timeoutMs = 60_000): Promise<string> {
    const result = await this.#client.environments.exec(this.id, { shell, timeout_ms: timeoutMs });
    expect(result, shell).toMatchObject({ exit_code: 0, timed_out: false });
    return result.stdout;
  }

  async write(path: string, text: string): Promise<void> {
    await this.sh(`base64 -d > ${path} <<'.'\n${Buffer.from(text).toString('base64')}\n.`);
  }

  async beginLife(): Promise<void> {
    await this.sh('mkdir -p /opt/life');
    await this.write('/opt/life/life.py', LIFE);
    await this.write('/opt/life/look.py', LOOK);
    await this.keepInMemory('from the source');
    await this.sh(
      `cd /opt/life
      start() { setsid python3 -u life.py $1 > $1.log 2>&1 < /dev/null & }
      wait_for() { for i in $(seq 600); do if eval "$1"; then return; fi; sleep 0.1; done; cat *.log; exit 1; }
      start count; start write
      wait_for 'ss -ltn | grep -q :7000'; start hold
      wait_for '[ -S /run/life.socket ]'
      wait_for '[ "$(sqlite3 /workspace/life.db "select count(*) from b" 2>/dev/null || echo 0)" -gt 10 ]'`,
      120_000,
    );
  }

  keepInMemory(text: string): Promise<void> {
    return this.write('/dev/shm/kept', text);
  }

  /** Asks once on the open connection. */
  async look(): Promise<Life> {
    const life = JSON.parse(await this.sh('python3 /opt/life/look.py')) as Life; // our own program's
    expect(life.database).toBe('whole');
    return life;
  }

  /** It is the same life as `before`, asked once more on the same connection, and it goes on. */
  async expectGoesOnFrom(before: Life): Promise<Life> {
    const now = await this.look();
    expect(now).toMatchObject({
      nonce: before.nonce,
      sequence: before.sequence + 1,
      inMemory: before.inMemory,
    });
    expect(now.count).toBeGreaterThanOrEqual(before.count);
    expect(now.rows).toBeGreaterThanOrEqual(before.rows);
    for (let last = now; ; ) {
      const later = await this.look();
      expect(later.sequence).toBe(last.sequence + 1);
      if (later.count > now.count && later.rows > now.rows) return later;
      expect(later.sequence, 'it does not go on').toBeLessThan(now.sequence + 60);
      last = later;
    }
  }

  /** What tells machines apart, each value once in the world. */
  async identity(): Promise<Record<string, string>> {
    const out = await this.sh(
      'cat /etc/machine-id; hostname; cat /proc/sys/kernel/random/boot_id /proc/sys/kernel/random/uuid; head -c 16 /dev/urandom | od -An -tx1 | tr -d " "; ' +
        'python3 -c "import os; print(os.getrandom(16).hex())"; cat /run/fuse/generation',
    );
    const [machineId, hostname, bootId, uuid, urandom, getrandom] = out.trim().split('\n');
    return {
      machineId: machineId ?? '',
      hostname: hostname ?? '',
      bootId: bootId ?? '',
      uuid: uuid ?? '',
      urandom: urandom ?? '',
      getrandom: getrandom ?? '',
    };
  }

  /** How far the guest's clock is from ours, at most. */
  async clockErrorMs(): Promise<number> {
    const asked = Date.now();
    const guest = Number(BigInt((await this.sh('date +%s%N')).trim()) / 1_000_000n);
    const answered = Date.now();
    return Math.max(asked - guest, guest - answered, 0);
  }
}
