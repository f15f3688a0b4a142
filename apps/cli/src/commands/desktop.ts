/** `fuse desktop`: the display of an environment in a browser of this machine, which needs no network for it. */
import { isIP } from 'node:net';
import type { FuseClient } from '@fuse/sdk';
import { type Command, Option } from 'commander';
import { type ListenAddress, parseListenAddress } from '../args/listen.ts';
import { addGlobalOptions, type Cli, clientOf, wantsJson } from '../cli.ts';
import { CliError } from '../cli-error.ts';
import { DesktopServer } from '../desktop/desktop-server.ts';
import { openBrowser } from '../desktop/open-browser.ts';
import { interruptSignal } from '../interrupt.ts';
import { reasonOf } from '../output/error-text.ts';
import { json, printable } from '../output/format.ts';

interface DesktopFlags {
  listen: ListenAddress;
  viewOnly?: boolean;
  open: boolean;
}

const AFTER_HELP = `
It needs an image with a display. Runs until Ctrl-C. Whoever knows the address that is printed can use the display.

Examples:
  fuse desktop fuse-demo
  fuse desktop fuse-demo --view-only
  fuse desktop fuse-demo --no-open --listen 127.0.0.1:6080
`;

export function addDesktopCommand(parent: Command, cli: Cli): void {
  const command = parent
    .command('desktop')
    .summary('see and use a display in a browser')
    .description('See and use the display of an environment in a browser.')
    .argument('<id>')
    .addOption(
      new Option('--listen <host:port>', 'where to listen here; port 0 is any free one')
        .argParser(parseListenAddress)
        .default({ host: '127.0.0.1', port: 0 }, '127.0.0.1:0'),
    )
    .option('--view-only', 'the page sends no keys and no clicks')
    .option('--no-open', 'print the address alone, start no browser')
    .addHelpText('after', AFTER_HELP)
    .action(async (id: string, flags: DesktopFlags) => {
      const client = await clientOf(cli, command);
      await requireDisplay(client, id);
      const stop = interruptSignal();
      await using desktop = await serve(cli, client, id, flags);
      const { url, firstUrl } = desktop;
      await cli.io.out(wantsJson(command) ? json({ url }) : `${url}\n`);
      if (!isLoopback(url)) cli.io.say('it is served to other machines too, without encryption');
      if (flags.open)
        openBrowser(firstUrl).catch(() => cli.io.say('no browser could be started: open the address in one'));
      await new Promise((_, reject) => stop.addEventListener('abort', () => reject(stop.reason), { once: true }));
    });
  addGlobalOptions(command);
}

async function requireDisplay({ environments }: FuseClient, id: string): Promise<void> {
  const { up, error = '' } = await environments.computerDisplay(id);
  if (up) return;
  const why = error === '' ? '' : `: ${error}`;
  throw new CliError(`unavailable: ${error.includes('is not up') ? error : `the display of ${id} is not up${why}`}`, {
    hint: `only an image with a display has one, a moment after its start; a terminal is always there: fuse environment shell ${id}`,
  });
}

function serve(cli: Cli, client: FuseClient, id: string, { listen, viewOnly = false }: DesktopFlags) {
  return DesktopServer.start({
    environmentId: id,
    viewOnly,
    listen,
    open: (signal) => client.environments.computerStream(id, { signal }),
    onError: (error) => cli.io.say(printable(reasonOf(error))),
    reasonOf,
  }).catch((cause: unknown) => {
    throw new CliError(`cannot listen on ${listen.host}:${listen.port}: ${reasonOf(cause)}`, {
      hint: 'any free port: --listen 127.0.0.1:0',
      cause,
    });
  });
}

function isLoopback(url: string): boolean {
  const { hostname } = new URL(url);
  return hostname === '[::1]' || (isIP(hostname) === 4 && hostname.startsWith('127.'));
}
