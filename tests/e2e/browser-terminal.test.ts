/** A terminal in a real browser: xterm.js, the SDK as browsers load it, a WebSocket opened with a ticket, a real VM. */
import { access, readFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { LocalStack } from './support/local-stack.ts';

const project = fileURLToPath(new URL('../../', import.meta.url));
const chromiumPath = '/usr/bin/chromium';
const noBrowser = await access(chromiumPath).then(
  () => undefined,
  () => `there is no ${chromiumPath}`,
);
if (noBrowser !== undefined) console.log(`skipped: the terminal in a browser, for ${noBrowser}`);

const types: Record<string, string> = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.css': 'text/css' };
const imports = {
  '@fuse/sdk': '/packages/sdk/dist/index.js',
  '@fuse/contract': '/packages/contract/dist/index.js',
  zod: '/node_modules/zod/index.js',
  'eventsource-parser': '/node_modules/eventsource-parser/dist/index.js',
  'eventsource-parser/stream': '/node_modules/eventsource-parser/dist/stream.js',
};

const pageHtml = (baseUrl: string, id: string) => `<!doctype html>
<meta charset="utf-8">
<link rel="stylesheet" href="/node_modules/@xterm/xterm/css/xterm.css">
<div id="terminal"></div>
<script type="importmap">${JSON.stringify({ imports })}</script>
<script type="module">
  import { Terminal } from '/node_modules/@xterm/xterm/lib/xterm.mjs';
  import { FuseClient } from '@fuse/sdk';
  const screen = new Terminal({ rows: 24, cols: 80 });
  screen.open(document.getElementById('terminal'));
  const client = new FuseClient({ baseUrl: ${JSON.stringify(baseUrl)} });
  const remote = await client.environments.attach(${JSON.stringify(id)}, {
    session: 'browser', rows: screen.rows, cols: screen.cols,
    ticket: async () => (await fetch('/ticket')).text(),
  });
  screen.onData((text) => remote.write(text));
  screen.onResize(({ rows, cols }) => remote.resize(rows, cols));
  window.screenText = () => {
    const buffer = screen.buffer.active;
    return Array.from({ length: buffer.length }, (_, y) => buffer.getLine(y).translateToString(true)).join('\\n');
  };
  window.colourOf = (text) => {
    const buffer = screen.buffer.active;
    for (let y = 0; y < buffer.length; y += 1) {
      const x = buffer.getLine(y).translateToString(true).indexOf(text);
      if (x >= 0 && buffer.getLine(y).getCell(x).isFgPalette()) return buffer.getLine(y).getCell(x).getFgColor();
    }
  };
  window.terminal = screen;
  screen.focus();
  for await (const chunk of remote.output) await new Promise((done) => screen.write(chunk, done));
  window.exitCode = (await remote.exit).exit_code;
</script>`;

describe.skipIf(noBrowser !== undefined)('a terminal in a browser', () => {
  const id = 'fuse-browser';
  let stack: LocalStack;
  let pages: Server;
  let browser: Browser;
  let page: Page;
  const problems: string[] = [];

  beforeAll(async () => {
    stack = await LocalStack.up();
    await stack.client.environments.create({ task_id: 'browser', spec: { ram_mb: 512 } });
    pages = createServer((request, response) => {
      answer(new URL(request.url ?? '/', 'http://page').pathname).then(
        ({ type, body }) => response.writeHead(200, { 'content-type': type }).end(body),
        () => response.writeHead(404).end(),
      );
    });
    await new Promise<void>((resolve) => pages.listen(0, '127.0.0.1', resolve));
    browser = await chromium.launch({ executablePath: chromiumPath, args: ['--no-sandbox'] });
    page = await browser.newPage();
    page.on('pageerror', (error) => problems.push(error.message));
    page.on('console', (message) => {
      if (message.type() === 'error' && !message.text().includes('favicon')) problems.push(message.text());
    });
    await open();
  });
  afterAll(async () => {
    await browser?.close();
    await new Promise((resolve) => (pages === undefined ? resolve(undefined) : pages.close(resolve)));
    await stack?.[Symbol.asyncDispose]();
  });

  async function answer(path: string): Promise<{ type: string; body: string | Buffer }> {
    if (path === '/') return { type: 'text/html', body: pageHtml(stack.url, id) };
    if (path === '/favicon.ico') return { type: 'image/x-icon', body: '' };
    if (path === '/ticket') {
      const { ticket } = await stack.client.environments.tickets(id).create({ for: 'attach', session: 'browser' });
      return { type: 'text/plain', body: ticket };
    }
    const file = normalize(path);
    if (!/^\/(node_modules|packages\/(sdk|contract)\/dist)\//.test(file)) throw new Error(`not served: ${path}`);
    return { type: types[extname(file)] ?? 'application/octet-stream', body: await readFile(join(project, file)) };
  }

  async function open(): Promise<void> {
    const { port } = pages.address() as AddressInfo; // it listens on TCP
    await page.goto(`http://127.0.0.1:${port}/`);
    await shows(/[#$] *$/m);
  }

  const screenText = () => page.evaluate('globalThis.screenText?.() ?? ""') as Promise<string>;

  async function shows(wanted: string | RegExp): Promise<void> {
    await vi.waitFor(
      async () => expect(problems.length > 0 ? problems.join('\n') : await screenText()).toMatch(wanted),
      { timeout: 30_000, interval: 50 },
    );
  }

  async function line(text: string): Promise<void> {
    await page.keyboard.type(text);
    await page.keyboard.press('Enter');
  }

  test('what is typed is run, and comes back in its colours', async () => {
    await line("PS1='guest> '; mark=kept; clear; stty size");
    await shows(/^24 80\nguest> *$/m);
    await line("printf '\\033[38;5;208morange\\033[0m 漢字 é 🚀\\n'");
    await shows(/^orange 漢字 é 🚀\nguest> *$/m);
    expect(await page.evaluate('globalThis.colourOf("orange 漢")')).toBe(208);
  });

  test('vim, Ctrl-C and a new size', async () => {
    await page.evaluate('globalThis.terminal.resize(100, 30)');
    await line('clear; stty size');
    await shows(/^30 100\nguest> *$/m);
    await line('vim /workspace/from-browser');
    await shows('"/workspace/from-browser"');
    await page.keyboard.type('ifrom a browser');
    await shows(/^from a browser/m);
    await page.keyboard.press('Escape');
    await line(':wq');
    await shows(/^guest> *$/m);
    await line('clear; cat /workspace/from-browser; sleep 600');
    await shows(/^from a browser$/m);
    await page.keyboard.press('Control+c');
    await shows(/\^C\nguest> *$/m);
    await line('echo "ended with $?"');
    await shows('ended with 130');
  });

  test('after a reload it is the same shell, at the page’s size, with its scrollback', async () => {
    await page.reload();
    await shows(/^ended with 130\nguest> *$/m);
    await line('clear; echo "$mark"; stty size');
    await shows(/^kept\n24 80\nguest> *$/m);
  });

  test('its end is the page’s to know', async () => {
    await line('exit 7');
    await expect.poll(() => page.evaluate('globalThis.exitCode'), { timeout: 30_000 }).toBe(7);
    expect(problems).toEqual([]);
  });
});
