/** `fuse desktop` as it is typed: noVNC in a real browser, its server, the SDK's stream. No image has a display yet, so the display is a small one of the test's. */
import { access, chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type Started, startFuse } from './support/fuse-cli.ts';
import { PaintedDisplay } from './support/painted-display.ts';

const chromiumPath = '/usr/bin/chromium';
const noBrowser = await access(chromiumPath).then(
  () => undefined,
  () => `there is no ${chromiumPath}`,
);
if (noBrowser !== undefined) console.log(`skipped: a display in a browser, for ${noBrowser}`);

const COLOUR = [200, 40, 90] as const;
let display: PaintedDisplay;
let home: string;
let started: Started | undefined;
beforeAll(async () => {
  display = await PaintedDisplay.start(COLOUR);
  home = await mkdtemp(join(tmpdir(), 'fuse-e2e-desktop-'));
});
afterEach(async () => {
  started?.child.kill('SIGKILL');
  await started?.outcome;
});
afterAll(async () => {
  await display[Symbol.asyncDispose]();
  await rm(home, { recursive: true, force: true });
});

async function desktop(flags: readonly string[], env: Record<string, string> = {}): Promise<string> {
  const fuse = startFuse(['desktop', 'fuse-a', ...flags], {
    env: { FUSE_URL: display.url, FUSE_TOKEN: 't', ...env },
  });
  started = fuse;
  await fuse.says('/\n');
  return fuse.said().split('\n')[0] ?? '';
}

async function interrupted(): Promise<number | null | undefined> {
  started?.child.kill('SIGINT');
  return (await started?.outcome)?.code;
}

describe.skipIf(noBrowser !== undefined)('a display in a browser', () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await chromium.launch({ executablePath: chromiumPath, args: ['--no-sandbox'] });
  });
  afterAll(() => browser?.close());

  const pixelOf = (page: Page) =>
    page.evaluate("[...(document.querySelector('canvas')?.getContext('2d').getImageData(20, 20, 1, 1).data ?? [])]");

  async function visit(url: string): Promise<{ page: Page; problems: string[] }> {
    const page = await browser.newPage();
    const problems: string[] = [];
    page.on('pageerror', (error) => problems.push(error.message));
    page.on('console', (message) => {
      if (message.type() === 'error' && !message.location().url.endsWith('/favicon.ico')) problems.push(message.text());
    });
    await page.goto(url);
    await expect.poll(() => pixelOf(page)).toEqual([...COLOUR, 255]);
    return { page, problems };
  }

  test('shows what is on it, takes clicks, and ends with Ctrl-C', async () => {
    const { page, problems } = await visit(await desktop(['--no-open']));
    expect(await page.title()).toBe('fuse-a: desktop');
    await page.click('canvas');
    await expect.poll(() => display.pointerEvents).toBeGreaterThan(0);
    expect(problems).toEqual([]);
    expect(await interrupted()).toBe(130);
    await expect.poll(() => display.viewers).toBe(0);
    await expect.poll(() => page.textContent('#status')).toContain('fuse desktop was stopped');
    await page.close();
  });

  test('is only looked at with --view-only', async () => {
    const before = display.pointerEvents;
    const { page, problems } = await visit(await desktop(['--no-open', '--view-only']));
    expect(await page.textContent('#status')).toBe('view only');
    await page.click('canvas');
    // Comes after what the click would have sent.
    await page.close();
    await expect.poll(() => display.viewers).toBe(0);
    expect(display.pointerEvents).toBe(before);
    expect(problems).toEqual([]);
    expect(await interrupted()).toBe(130);
  });
});

test('a browser is started with an address that is good once', async () => {
  const opener = join(home, 'xdg-open');
  await writeFile(
    opener,
    `#!/bin/sh\nprintf '%s\\n' "$@" > ${home}/opened.part\nmv ${home}/opened.part ${home}/opened\n`,
  );
  await chmod(opener, 0o755);
  const url = await desktop([], { PATH: `${home}:${process.env.PATH}` });
  await expect.poll(() => readFile(join(home, 'opened'), 'utf8').catch(() => '')).toMatch(/^http:\/\/127[^\n]*\/\n$/);
  const first = (await readFile(join(home, 'opened'), 'utf8')).trim();
  expect(first).not.toBe(url);
  const visited = await fetch(first);
  expect([visited.status, visited.url]).toEqual([200, url]);
  expect((await fetch(first)).status).toBe(404);
  expect(await interrupted()).toBe(130);
  await expect(fetch(url)).rejects.toThrow();
});

test('without a browser the address is still there', async () => {
  await desktop([], { PATH: home.replace(/$/, '/none') });
  await started?.says('no browser could be started: open the address in one');
  expect(await interrupted()).toBe(130);
});
