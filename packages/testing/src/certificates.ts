/** For tests: certificates of an authority of their own, made by openssl. */
import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { temporaryDirectory } from './temporary-directory.ts';

const run = promisify(execFile);

/** PEM. */
export interface Certificate {
  cert: string;
  key: string;
}

export interface Authority {
  ca: string;
  /** For this address, or name. */
  server(subject: string): Promise<Certificate>;
  /** `names`: as openssl writes them, such as `DNS:example.org`. */
  serverOf(names: readonly string[]): Promise<Certificate>;
  client(): Promise<Certificate>;
}

const NEW_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

export async function certificateAuthority(): Promise<Authority & AsyncDisposable> {
  const directory = await temporaryDirectory('fuse-ca-');
  const at = (name: string) => join(directory.path, name);
  const ofCa = [
    '-x509',
    '-subj',
    '/CN=authority of a test',
    '-days',
    '2',
    '-keyout',
    at('ca.key'),
    '-out',
    at('ca.pem'),
  ];
  await run('openssl', ['req', ...NEW_KEY, ...ofCa]);
  let made = 0;
  const issue = async (extensions: string): Promise<Certificate> => {
    made += 1;
    const [key, request, cert, config] = ['key', 'csr', 'pem', 'cnf'].map((kind) => at(`${made}.${kind}`)) as [
      string,
      string,
      string,
      string,
    ]; // of four
    await writeFile(config, extensions);
    await run('openssl', ['req', ...NEW_KEY, '-subj', '/CN=of a test', '-keyout', key, '-out', request]);
    const signed = ['-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-CAcreateserial', '-days', '2', '-extfile', config];
    await run('openssl', ['x509', '-req', '-in', request, '-out', cert, ...signed]);
    return { cert: await readFile(cert, 'utf8'), key: await readFile(key, 'utf8') };
  };
  return {
    ca: await readFile(at('ca.pem'), 'utf8'),
    server: (subject) => {
      const kind = /^[0-9.]+$|:/.test(subject) ? 'IP' : 'DNS';
      return issue(`subjectAltName=${kind}:${subject}\nextendedKeyUsage=serverAuth\n`);
    },
    serverOf: (names) => issue(`subjectAltName=${names.join(',')}\nextendedKeyUsage=serverAuth\n`),
    client: () => issue('extendedKeyUsage=clientAuth\n'),
    [Symbol.asyncDispose]: () => directory[Symbol.asyncDispose](),
  };
}
