/**
 * `manifest_inline` and `secrets` of a create (api.md 1.3, 2.2): checked, and what of them the guest reads. A manifest is data for what runs there: nothing here
 * starts its services. Only what refers to secrets is looked at, the rest is the client's. Pure.
 */
import { AppError, type CreateEnvironment } from '@fuse/contract';
import { z } from 'zod';
import { isStandardBase64 } from './standard-base64.ts';

export const DEFAULT_MANIFEST = '{"version":"1","machine":{"workspace":"/workspace"},"services":{}}';

const MAX_SECRETS = 256;
const MAX_NAME_LENGTH = 256;
const MAX_VALUE_BYTES = 65_536;
const MAX_TOTAL_BYTES = 1_048_576;
const MAX_SHOWN = 100;

const Variable = z.looseObject({ value: z.string().nullish(), secret: z.string().nullish() });
const Variables = z.record(z.string(), Variable).nullish();
const Manifest = z.looseObject({
  machine: z.looseObject({ env: Variables }).nullish(),
  services: z.record(z.string(), z.looseObject({ env: Variables })).nullish(),
});
type Manifest = z.infer<typeof Manifest>;

/** What a create gives, as the row keeps it until the start is over. */
export interface Confided {
  /** Its JSON, as it came. */
  manifest?: string;
  secrets?: Record<string, string>;
}

/** Undefined: neither is given. First failure wins, in the API's order. */
export function confidedOf({ manifest_inline = '', secrets }: CreateEnvironment): Confided | undefined {
  const manifest = manifest_inline === '' ? undefined : decode(manifest_inline);
  checkSecrets(secrets ?? {}, parse(manifest ?? DEFAULT_MANIFEST));
  if (manifest === undefined && Object.keys(secrets ?? {}).length === 0) return undefined;
  return { ...(manifest === undefined ? {} : { manifest }), ...(secrets === undefined ? {} : { secrets }) };
}

/** Line ends are what tools put into base64. */
function decode(given: string): string {
  const text = given.replaceAll(/[\r\n]/g, '');
  if (!isStandardBase64(text)) throw badManifest('must be standard base64 with padding');
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.from(text, 'base64'));
  } catch {
    throw badManifest('must be UTF-8');
  }
}

const badManifest = (why: string) =>
  new AppError('invalid_argument', `decode manifest_inline: ${why}`, { details: { field: 'manifest_inline' } });

function parse(text: string): Manifest {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw refused('manifest_inline', 'the manifest is no JSON'); // the parser's words would quote it
  }
  const parsed = Manifest.safeParse(json);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw refused('manifest_inline', `the manifest's ${shown(issue?.path.join('.') || 'top')}: ${issue?.message ?? ''}`);
}

function checkSecrets(secrets: Record<string, string>, manifest: Manifest): void {
  const entries = Object.entries(secrets);
  if (entries.length > MAX_SECRETS) throw refused('secrets', `at most ${MAX_SECRETS} secrets, not ${entries.length}`);
  let total = 0;
  for (const [name, value] of entries) {
    if (name.length > MAX_NAME_LENGTH)
      throw refused('secrets', `the name ${shown(name)} is over ${MAX_NAME_LENGTH} characters`);
    const bytes = Buffer.byteLength(value);
    if (bytes > MAX_VALUE_BYTES) throw refused(`secrets.${shown(name)}`, `${shown(name)} is over 64 KiB`);
    total += bytes;
  }
  if (total > MAX_TOTAL_BYTES) throw refused('secrets', `all of them together are over 1 MiB`);
  for (const { of, name, variable } of variablesOf(manifest)) checkVariable(secrets, of, name, variable);
}

function checkVariable(
  secrets: Record<string, string>,
  of: string,
  name: string,
  { value, secret }: z.infer<typeof Variable>,
): void {
  const where = `${shown(of)}.env.${shown(name)}`;
  // It goes into a file that shells read.
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) throw refused('manifest_inline', `${where} is no name of a variable`);
  if (value?.includes('\0')) throw refused('manifest_inline', `${where} holds NUL`);
  if (!secret) return;
  if (!Object.hasOwn(secrets, secret))
    throw refused('secrets', `${where} refers to the secret ${shown(secret)}, which is not given`);
  if (secrets[secret]?.includes('\0')) throw refused('secrets', `${where} refers to ${shown(secret)}, which holds NUL`);
}

function* variablesOf({ machine, services }: Manifest) {
  for (const [name, variable] of Object.entries(machine?.env ?? {})) yield { of: 'machine', name, variable };
  for (const [service, { env }] of Object.entries(services ?? {}))
    for (const [name, variable] of Object.entries(env ?? {})) yield { of: `services.${service}`, name, variable };
}

const refused = (field: string, why: string) =>
  new AppError('invalid_argument', `secrets validation failed: ${why}`, { details: { field } });

/** Names are the client's, and so is their length. */
const shown = (name: string): string => (name.length > MAX_SHOWN ? `${name.slice(0, MAX_SHOWN)}…` : name);

/** `/fuse/env`: what the manifest's machine has in its environment, sorted, to be read by a shell. */
export function shellVariables({ manifest = DEFAULT_MANIFEST, secrets = {} }: Confided): string {
  const { machine } = parse(manifest);
  const variables = Object.entries(machine?.env ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  const lines = variables.map(([name, { value, secret }]) => {
    const text = secret ? (secrets[secret] ?? '') : (value ?? '');
    return `${name}='${text.replaceAll("'", `'\\''`)}'\n`;
  });
  return lines.join('');
}
