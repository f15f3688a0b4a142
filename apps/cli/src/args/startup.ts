/** What `environment create` puts into its environment: files, a script, a healthcheck, exposed ports. */
import { Label } from '@fuse/contract';
import type { CreateEnvironment } from '@fuse/sdk';
import { InvalidArgumentError } from 'commander';

type Expose = NonNullable<CreateEnvironment['expose']>;
type Healthcheck = NonNullable<CreateEnvironment['healthcheck']>;

function parsePort(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port < 1 || port > 65_535) throw new InvalidArgumentError('A port is a number from 1 to 65535.');
  return port;
}

/** `PORT[:NAME]`; may be repeated. */
export function gatherExpose(text: string, soFar: Expose = []): Expose {
  const at = text.indexOf(':');
  const name = at < 0 ? undefined : text.slice(at + 1);
  if (name !== undefined && !Label.safeParse(name).success)
    throw new InvalidArgumentError('A name is 1 to 63 letters, digits, "-", "_" or ".". Write PORT or PORT:NAME.');
  return [
    ...soFar,
    { port: parsePort(at < 0 ? text : text.slice(0, at)), ...(name === undefined ? {} : { as: name }) },
  ];
}

/** `PORT[/path]`. */
export function parseHttpCheck(text: string): NonNullable<Healthcheck['http']> {
  const at = text.indexOf('/');
  const port = parsePort(at < 0 ? text : text.slice(0, at));
  return at < 0 ? { port } : { port, path: text.slice(at) };
}

/** `GUEST=LOCAL`; may be repeated. By the path in the guest. */
export function gatherFile(text: string, soFar: Readonly<Record<string, string>> = {}): Record<string, string> {
  const at = text.indexOf('=');
  const [guest, local] = [text.slice(0, at), text.slice(at + 1)];
  if (at < 1 || local === '') throw new InvalidArgumentError('Write GUEST=LOCAL, such as /workspace/app.py=app.py.');
  return { ...soFar, [guest.startsWith('/') ? guest : `/workspace/${guest}`]: local };
}
