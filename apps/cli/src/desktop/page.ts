/** The page that shows a display: noVNC as it comes, and what starts it. */
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

const require = createRequire(import.meta.url);

/** Of the package that is installed; its module is core/rfb.js. */
const noVncDirectory = (): string => dirname(dirname(require.resolve('@novnc/novnc')));

/** Its modules alone, for a path below `novnc/`. */
export function noVncFile(path: string): string | undefined {
  return /^(core|vendor)(\/[a-z0-9_-]+)+\.js$/.test(path) ? join(noVncDirectory(), path) : undefined;
}

export interface PageOptions {
  environmentId: string;
  viewOnly: boolean;
  /** Of its Content-Security-Policy. */
  nonce: string;
}

/** `'self'` is not of every browser for WebSockets: `host` is what the browser calls this server. */
export const pagePolicy = (nonce: string, host: string): string =>
  [
    "default-src 'none'",
    `script-src 'self' 'nonce-${nonce}'`,
    `style-src 'nonce-${nonce}'`,
    'img-src data: blob:',
    `connect-src ws://${host}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');

export const pageHtml = ({ environmentId, viewOnly, nonce }: PageOptions): string => `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>${escaped(environmentId)}: desktop</title>
<style nonce="${nonce}">
  html, body { margin: 0; height: 100%; background: #1b1b1f; color: #eee; font: 14px system-ui, sans-serif; }
  body { display: flex; flex-direction: column; }
  #status { padding: 6px 12px; }
  #status:empty { display: none; }
  #screen { flex: 1; min-height: 0; }
</style>
<div id="status" role="status">connecting…</div>
<div id="screen"></div>
<script type="module" nonce="${nonce}">
  import RFB from './novnc/core/rfb.js';
  const status = document.getElementById('status');
  const url = new URL('stream', location.href);
  url.protocol = 'ws:';
  const socket = new WebSocket(url);
  socket.addEventListener('close', ({ reason }) => {
    status.textContent = (reason || 'the display has ended the connection') + '; reload to connect again';
  });
  const display = new RFB(document.getElementById('screen'), socket, { shared: true });
  display.scaleViewport = true;
  display.viewOnly = ${viewOnly};
  display.addEventListener('connect', () => {
    status.textContent = ${JSON.stringify(viewOnly ? 'view only' : '')};
    display.focus();
  });
  display.addEventListener('credentialsrequired', () => {
    display.sendCredentials({ password: prompt('Password of the display') ?? '' });
  });
</script>
</html>
`;

const entities: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escaped = (text: string): string => text.replace(/[&<>"]/g, (each) => entities[each] ?? '');
