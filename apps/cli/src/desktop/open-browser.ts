import { spawn } from 'node:child_process';

const openers: Partial<Record<NodeJS.Platform, string>> = { darwin: 'open' };

/** The desktop's own choice of a browser, which outlives this program. Rejects when there is none. */
export function openBrowser(url: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(openers[process.platform] ?? 'xdg-open', [url], { detached: true, stdio: 'ignore' });
    child.once('error', reject);
    child.once('exit', (code) => {
      if (code === 0) resolve();
      else reject(new Error(`no browser could be started (${code})`));
    });
    child.unref();
  });
}
