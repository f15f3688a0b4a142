/** The terminal as a person has it: tmux around the real command line around a real VM. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { LocalStack } from './support/local-stack.ts';
import { Tmux, whyNoTmux } from './support/tmux.ts';

/** Of the terminal itself: alternate screen, cursor, mouse, application keys. */
const MODES = '#{alternate_on} #{cursor_flag} #{mouse_any_flag} #{keypad_flag} #{keypad_cursor_flag}';
const PLAIN = '0 1 0 0 0';

const noTmux = await whyNoTmux();
if (noTmux !== undefined) console.log(`skipped: the terminal tests, for ${noTmux}`);

describe.skipIf(noTmux !== undefined)('fuse environment shell', () => {
  let stack: LocalStack;
  let terminal: Tmux;
  const id = 'fuse-shell';

  beforeAll(async () => {
    stack = await LocalStack.up();
    await stack.client.environments.create({ task_id: 'shell', spec: { ram_mb: 512 } });
  });
  beforeEach(async () => {
    const { FUSE_HOME = '', FUSE_PORT = '' } = stack.environmentVariables;
    terminal = await Tmux.start({
      rows: 24,
      cols: 80,
      cwd: stack.home,
      env: { FUSE_HOME, FUSE_PORT, FUSE_URL: stack.url, FUSE_TOKEN: stack.token, PATH: process.env.PATH ?? '' },
    });
    const program = new URL('../../apps/cli/bin/fuse.js', import.meta.url).pathname;
    await terminal.line(`fuse() { "${process.execPath}" "${program}" "$@"; }`);
    await terminal.line("PS1='local:$?> '; clear"); // sh takes none from its environment
    await terminal.shows(/^local:0> *$/m);
  });
  afterEach(async () => {
    await terminal?.[Symbol.asyncDispose]();
  });
  afterAll(async () => {
    await stack?.[Symbol.asyncDispose]();
  });

  /** Enters a shell and gives it a prompt that nothing else looks like. */
  async function enter(...args: string[]): Promise<void> {
    await terminal.line(`clear; fuse environment shell ${args.join(' ')} ${id}`);
    await terminal.shows(/[#$] *$/m);
    await terminal.line("PS1='guest> '; clear");
    await terminal.shows(/^guest> *$/m);
  }

  /** Whatever the screen shows: a process of this command line is there. */
  async function runs(commandLine: string): Promise<void> {
    const find = { cmd: ['pgrep', '-xf', commandLine] };
    await expect
      .poll(async () => (await stack.client.environments.exec(id, find)).exit_code, { timeout: 30_000 })
      .toBe(0);
  }

  /** Out of the shell: the terminal is the local one again, as it was, and what is typed is echoed. */
  async function isBack(exitCode: number): Promise<void> {
    await terminal.shows(new RegExp(`^local:${exitCode}>`, 'm'));
    expect(await terminal.says(MODES)).toBe(PLAIN);
    await terminal.line(
      'clear; stty -a | tr -s " ;" "\\n" | grep -xE -- "-?(icanon|echo|isig|icrnl|opost)" | tr "\\n" ,; echo',
    );
    await terminal.shows('isig,icanon,echo,');
    expect(await terminal.screen()).toMatch(/^icrnl,opost,isig,icanon,echo,/m);
    await terminal.line('clear');
    await terminal.shows(/^local:0> *$/m);
  }

  test('what is typed is run there, in colours and any script, and its size is the window’s', async () => {
    await enter();
    await terminal.line('tty; echo $TERM; stty size');
    const screen = await terminal.shows('24 80');
    expect(screen).toContain('/dev/pts/');
    expect(screen).toContain('xterm-256color');
    await terminal.resize(40, 120);
    await terminal.line('clear; stty size');
    await terminal.shows('40 120');
    await terminal.line("clear; printf '\\033[38;5;208morange\\033[0m 漢字 é 🚀\\n'");
    await terminal.shows('orange 漢字 é 🚀');
    expect(await terminal.screen({ colours: true })).toContain('\x1b[38;5;208morange');
    // A line feed alone goes down and not back, where a program has asked for that.
    await terminal.line("clear; stty -opost; printf 'ab\\ncd\\r\\n'; stty opost");
    await terminal.shows(/^ab\n {2}cd\n/m);
    await terminal.line('exit 3');
    await isBack(3);
  });

  test('vim edits a file there, and leaves the screen as it was', async () => {
    await enter();
    await terminal.line('vim /workspace/note.txt');
    await terminal.shows('"/workspace/note.txt"');
    await terminal.type('ihello from vim: ünïcode');
    await terminal.press('Escape');
    await terminal.line(':wq');
    await terminal.shows(/^guest> *$/m);
    await terminal.line('clear; cat /workspace/note.txt');
    await terminal.shows(/^hello from vim: ünïcode\nguest> *$/m);
    await terminal.press('C-d');
    await isBack(0);
  });

  test('Ctrl-C, Ctrl-Z and fg, Ctrl-D are the shell’s and its programs’', async () => {
    await enter();
    await terminal.line('sleep 600');
    await runs('sleep 600');
    await terminal.press('C-c');
    await terminal.shows(/\^C\nguest> *$/m);
    await terminal.line('clear; sleep 601');
    await runs('sleep 601');
    await terminal.press('C-z');
    await terminal.shows(/Stopped +sleep 601\n[\s\S]*guest> *$/m);
    await terminal.line('clear; fg');
    await terminal.shows(/^sleep 601$/m);
    await terminal.press('C-c');
    await terminal.shows(/\^C\nguest> *$/m);
    await terminal.line('echo "still $((40 + 2))"');
    await terminal.shows('still 42');
    await terminal.line('cat > /workspace/typed');
    await runs('cat');
    await terminal.line('one line');
    await terminal.press('C-d');
    await terminal.shows(/one line\nguest> *$/m);
    await terminal.press('C-d');
    await isBack(0);
    expect((await stack.client.environments.exec(id, { cmd: ['cat', '/workspace/typed'] })).stdout).toBe('one line\n');
  });

  test('detached and attached again it is the same shell, with its scrollback, at the new size', async () => {
    await enter('--session', 'work');
    await terminal.line('mark=kept; for i in $(seq 60); do echo "line $i of it"; done');
    await terminal.shows('line 60 of it');
    await terminal.press('C-p');
    await terminal.press('C-q');
    await terminal.shows('--session work');
    await isBack(0);
    await terminal.resize(30, 100);
    await terminal.line(`fuse environment shell --list ${id}`);
    await terminal.shows(/work.+running/);
    await terminal.line(`clear; fuse environment shell --session work ${id}`);
    await terminal.shows('line 60 of it');
    expect(await terminal.screen({ history: true })).toContain('line 3 of it');
    await terminal.line('clear; echo "$mark"; stty size');
    await terminal.shows(/kept\n30 100/);
    await terminal.line('exit');
    await isBack(0);
  });

  test('a signal that ends the command line leaves the terminal whole, and the session running', async () => {
    await enter('--session', 'signalled');
    await terminal.line('vim -n -c "set mouse=a" /workspace/note.txt');
    await terminal.shows('hello from vim');
    expect(await terminal.says(MODES)).not.toBe(PLAIN);
    for (const pid of await terminal.children()) process.kill(pid, 'SIGTERM');
    await isBack(143);
    const { state } = await stack.client.environments.execs.get(id, 'signalled');
    expect(state).toBe('running');
    await stack.client.environments.execs.kill(id, 'signalled');
  });

  test('stopped and continued from elsewhere, it has the terminal again as it needs it', async () => {
    await terminal.line(`clear; fuse environment shell ${id}`);
    await terminal.shows(/[#$] *$/m);
    const [pid = 0] = await terminal.children();
    process.kill(pid, 'SIGSTOP');
    await terminal.shows(/local:\d+> *$/m);
    await terminal.type('stty sane; clear; fg');
    await terminal.press('C-j'); // the terminal is raw still
    await expect.poll(() => terminal.modes(), { timeout: 30_000 }).toMatch(/\s-opost .*\s-icanon .*\s-echo /s);
    await terminal.line('clear; echo "guest $((6 * 7))"; exit 6');
    await terminal.shows('guest 42');
    await isBack(6);
  });

  test('left in the middle of a full-screen program, by any way, the terminal is whole', async () => {
    await enter('--session', 'editor');
    await terminal.line('vim /workspace/note.txt');
    await terminal.shows('hello from vim');
    await terminal.press('C-p');
    await terminal.press('C-q');
    await isBack(0);
    await stack.client.environments.destroy(id);
    await stack.client.environments.create({ task_id: 'shell', spec: { ram_mb: 512 } });
    await terminal.line(`clear; fuse environment shell ${id} -- vim`);
    await terminal.shows('VIM - Vi IMproved');
    await stack.client.environments.destroy(id);
    await terminal.shows(/^local:1>/m);
    await isBack(1);
    await terminal.line(`clear; fuse environment shell ${id}`);
    await terminal.shows(`not found: vm ${id} not found`);
    await isBack(1);
  });
});
