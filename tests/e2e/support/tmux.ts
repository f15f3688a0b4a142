/** A real terminal: tmux on a server of its own, driven as a person would, read as the screen shows it. */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);
const SCREEN_DEADLINE_MS = 30_000;
const SESSION = 'test';

/** Undefined where there is a tmux; else why there is none. */
export async function whyNoTmux(): Promise<string | undefined> {
  return run('tmux', ['-V']).then(
    () => undefined,
    (error: Error) => `tmux cannot be run: ${error.message}`,
  );
}

export interface TmuxOptions {
  rows: number;
  cols: number;
  env: Record<string, string>;
  cwd: string;
}

export class Tmux implements AsyncDisposable {
  readonly #directory: string;
  readonly #socket: string;

  private constructor(directory: string) {
    this.#directory = directory;
    this.#socket = join(directory, 'socket');
  }

  /** A plain `sh` in a terminal of this size. */
  static async start({ rows, cols, env, cwd }: TmuxOptions): Promise<Tmux> {
    const terminal = new Tmux(await mkdtemp(join(tmpdir(), 'fuse-tmux-')));
    const variables = Object.entries({ ...env, ENV: '' }).flatMap(([name, value]) => ['-e', `${name}=${value}`]);
    await terminal.#tmux(
      '-f',
      '/dev/null',
      'new-session',
      '-d',
      '-s',
      SESSION,
      '-x',
      `${cols}`,
      '-y',
      `${rows}`,
      '-c',
      cwd,
      ...variables,
      'sh',
    );
    await terminal.#tmux('set-option', '-g', 'default-terminal', 'screen-256color');
    await terminal.#tmux('set-option', '-g', 'history-limit', '20000');
    return terminal;
  }

  /** Text as it is, each character a key. */
  async type(text: string): Promise<void> {
    await this.#tmux('send-keys', '-t', SESSION, '-l', text);
  }

  /** Keys by their names: Enter, C-c, Escape, Up. */
  async press(...keys: string[]): Promise<void> {
    await this.#tmux('send-keys', '-t', SESSION, ...keys);
  }

  async line(text: string): Promise<void> {
    await this.type(text);
    await this.press('Enter');
  }

  /** Pasted in one go, without bracketed paste unless the program has asked for it. */
  async paste(text: string): Promise<void> {
    await this.#tmux('set-buffer', '--', text);
    await this.#tmux('paste-buffer', '-p', '-t', SESSION);
  }

  async resize(rows: number, cols: number): Promise<void> {
    await this.#tmux('resize-window', '-t', SESSION, '-x', `${cols}`, '-y', `${rows}`);
  }

  /** What tmux knows of it, in the words of its FORMATS: "#{cursor_flag}". */
  async says(format: string): Promise<string> {
    const { stdout } = await run('tmux', ['-S', this.#socket, 'display-message', '-p', '-t', SESSION, format]);
    return stdout.trim();
  }

  /** Of its line discipline, in the words of stty. */
  async modes(): Promise<string> {
    const { stdout } = await run('stty', ['-a', '-F', await this.says('#{pane_tty}')]);
    return stdout;
  }

  /** The processes that its shell has started and that run. */
  async children(): Promise<number[]> {
    const shell = await this.says('#{pane_pid}');
    const pids = await readFile(`/proc/${shell}/task/${shell}/children`, 'utf8');
    return pids.split(' ').filter(Boolean).map(Number);
  }

  /** What stands on the screen; with `history` what has scrolled off it too, with `colours` as escape sequences. */
  async screen({ history = false, colours = false } = {}): Promise<string> {
    const { stdout } = await run('tmux', [
      ...['-S', this.#socket, 'capture-pane', '-p', '-t', SESSION],
      ...(history ? ['-S', '-'] : []),
      ...(colours ? ['-e'] : []),
    ]);
    return stdout;
  }

  /** Resolves with the screen once it holds the text or matches; rejects with what it shows instead. */
  async shows(wanted: string | RegExp, options: { history?: boolean; colours?: boolean } = {}): Promise<string> {
    const deadline = Date.now() + SCREEN_DEADLINE_MS;
    for (;;) {
      const screen = await this.screen(options);
      if (typeof wanted === 'string' ? screen.includes(wanted) : wanted.test(screen)) return screen;
      if (Date.now() > deadline) throw new Error(`the screen never showed ${wanted}:\n${screen}`);
      await delay(50);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#tmux('kill-server');
    await rm(this.#directory, { recursive: true, force: true });
  }

  async #tmux(...args: string[]): Promise<void> {
    await run('tmux', ['-S', this.#socket, ...args]);
  }
}
