import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { temporaryDirectory } from '@fuse/testing';
import { describe, expect, it } from 'vitest';
import { ConfigError, loadConfig } from './config.ts';

const DATABASE_URL = 'postgresql://fuse:secret@db/fuse';

describe('configuration', () => {
  it('has defaults for all but the database', () => {
    expect(loadConfig({ DATABASE_URL, HOME: '/home/x' })).toMatchObject({
      listen: { host: undefined, port: 8_080 },
      database: { url: DATABASE_URL },
      masterToken: undefined,
      vmPrefix: 'fuse-',
      placementPolicy: 'spread',
      publicUrl: undefined,
      publicAddress: undefined,
      shutdownTimeoutMs: 30_000,
      version: expect.stringMatching(/^\d+\.\d+\.\d+/),
    });
    expect(() => loadConfig({})).toThrow(/^DATABASE_URL: is required/);
    expect(loadConfig({ ORCH_EMBEDDED_DATABASE: '/var/lib/fuse' }).database).toEqual({ directory: '/var/lib/fuse' });
  });

  it('says how long execs outlive their environment', () => {
    const retention = (text?: string) =>
      loadConfig({ DATABASE_URL, ORCH_EXEC_RETENTION_SECONDS: text }).execs.retentionMs;
    expect(retention()).toBe(604_800_000);
    expect(retention('60')).toBe(60_000);
    for (const wrong of ['0', '-1', 'long']) expect(() => retention(wrong)).toThrow(/^ORCH_EXEC_RETENTION_SECONDS/);
  });

  it('reads addresses', () => {
    const listen = (text: string) => loadConfig({ DATABASE_URL, ORCH_LISTEN: text }).listen;
    expect(listen(':80')).toEqual({ host: undefined, port: 80 });
    expect(listen('127.0.0.1:0')).toEqual({ host: '127.0.0.1', port: 0 });
    expect(listen('[::1]:8080')).toEqual({ host: '::1', port: 8_080 });
    for (const text of ['8080', 'host', 'host:', ':99999', 'a b:1']) expect(() => listen(text)).toThrow(ConfigError);
  });

  it('reads who may ask, and how cookies are', () => {
    const allowed = (text?: string) => loadConfig({ DATABASE_URL, ORCH_ALLOWED_CIDRS: text }).allowedCidrs;
    expect(allowed()).toEqual([]);
    expect(allowed(' 10.0.0.0/8, ::1')).toEqual([
      { address: '10.0.0.0', prefixBits: 8, family: 'ipv4' },
      { address: '::1', prefixBits: 128, family: 'ipv6' },
    ]);
    for (const wrong of ['10.0.0.0/33', '10.0.0.0/8,', 'example.com', '10.0.0.0/8 ::1'])
      expect(() => allowed(wrong), wrong).toThrow(/^ORCH_ALLOWED_CIDRS: must be addresses or networks/);
    const secure = (text?: string) => loadConfig({ DATABASE_URL, ORCH_SECURE_COOKIES: text }).secureCookies;
    expect([secure(), secure(''), secure('true'), secure('0')]).toEqual([undefined, undefined, true, false]);
    expect(() => secure('yes')).toThrow(/^ORCH_SECURE_COOKIES/);
  });

  it('takes the public address from the public URL, unless it is given', () => {
    const address = (more: Record<string, string>) => loadConfig({ DATABASE_URL, ...more }).publicAddress;
    expect(address({ ORCH_PUBLIC_URL: 'https://fuse.example.com/' })).toBe('fuse.example.com:443');
    expect(address({ ORCH_PUBLIC_URL: 'http://[::1]:81' })).toBe('[::1]:81');
    expect(address({ ORCH_PUBLIC_URL: 'https://a.example', ORCH_PUBLIC_ADDRESS: 'b.example:8080' })).toBe(
      'b.example:8080',
    );
    for (const wrong of ['b.example', 'http://b.example:80', 'b.example:80/x', ':80'])
      expect(() => address({ ORCH_PUBLIC_ADDRESS: wrong }), wrong).toThrow(/^ORCH_PUBLIC_ADDRESS/);
  });

  it('limits requests a second when it is told to, by default with two seconds’ worth at once', () => {
    const limit = (more: Record<string, string>) => loadConfig({ DATABASE_URL, ...more }).rateLimit;
    expect(limit({})).toBeUndefined();
    expect(limit({ ORCH_RATE_LIMIT: '50' })).toEqual({ perSecond: 50, burst: 100 });
    expect(limit({ ORCH_RATE_LIMIT: '50', ORCH_RATE_LIMIT_BURST: '60' })).toEqual({ perSecond: 50, burst: 60 });
    expect(() => limit({ ORCH_RATE_LIMIT_BURST: '60' })).toThrow(/^ORCH_RATE_LIMIT_BURST: needs/);
    for (const wrong of ['0', '-1', '1.5', 'many'])
      expect(() => limit({ ORCH_RATE_LIMIT: wrong }), wrong).toThrow(/^ORCH_RATE_LIMIT: must be/);
  });

  it('names every wrong variable and shows no value', () => {
    const wrong = {
      DATABASE_URL: 'mysql://user:secret@db',
      ORCH_PLACEMENT: 'secret',
      ORCH_VM_PREFIX: 'SECRET',
      ORCH_SHUTDOWN_TIMEOUT_SECONDS: 'soon',
    };
    const error = (() => {
      try {
        return loadConfig(wrong);
      } catch (error) {
        return error;
      }
    })();
    expect(error).toBeInstanceOf(ConfigError);
    const { message } = error as ConfigError;
    for (const name of Object.keys(wrong)) expect(message).toContain(`${name}: `);
    expect(message.toLowerCase()).not.toContain('secret');
  });

  it('reads certificates and keys again, as their files are then', async () => {
    await using directory = await temporaryDirectory();
    const file = join(directory.path, 'certificate');
    writeFileSync(file, 'first');
    const config = loadConfig({ DATABASE_URL, ORCH_TLS_CERT: file, ORCH_TLS_KEY: file, ORCH_HOST_CA: file });
    writeFileSync(file, 'second');
    expect(config.tls?.cert).toBe('first');
    expect(config.rereadTls?.read()).toMatchObject({
      tls: { cert: 'second', key: 'second' },
      hostTls: { ca: 'second' },
    });
    rmSync(file);
    expect(() => config.rereadTls?.read()).toThrow(ConfigError);
  });

  it('reads certificates and keys from files, which go in pairs', () => {
    const file = fileURLToPath(import.meta.url);
    const text = readFileSync(file, 'utf8');
    const both = loadConfig({ DATABASE_URL, ORCH_TLS_CERT: file, ORCH_TLS_KEY: file, ORCH_HOST_CA: file });
    expect(both).toMatchObject({ tls: { cert: text, key: text }, hostTls: { ca: text } });
    expect(loadConfig({ DATABASE_URL }).tls).toBeUndefined();
    for (const name of ['ORCH_TLS_CERT', 'ORCH_TLS_KEY', 'ORCH_HOST_CLIENT_CERT', 'ORCH_HOST_CLIENT_KEY'])
      expect(() => loadConfig({ DATABASE_URL, [name]: file }), name).toThrow(/goes together with/);
    expect(() => loadConfig({ DATABASE_URL, ORCH_HOST_CA: '/nowhere' })).toThrow(/^ORCH_HOST_CA: .* cannot be read/);
  });

  it('takes the token from a file, never an empty one', async () => {
    await using directory = await temporaryDirectory();
    const path = `${directory.path}/token`;
    await writeFile(path, 'from-a-file\n');
    expect(loadConfig({ DATABASE_URL, ORCH_AUTH_TOKEN_FILE: path }).masterToken).toBe('from-a-file');
    expect(loadConfig({ DATABASE_URL, ORCH_AUTH_TOKEN: '' }).masterToken).toBeUndefined();
    expect(() => loadConfig({ DATABASE_URL, ORCH_AUTH_TOKEN: 'x', ORCH_AUTH_TOKEN_FILE: path })).toThrow(ConfigError);
    expect(() => loadConfig({ DATABASE_URL, ORCH_AUTH_TOKEN_FILE: `${path}.none` })).toThrow(/cannot be read/);
    await writeFile(path, ' \n');
    expect(() => loadConfig({ DATABASE_URL, ORCH_AUTH_TOKEN_FILE: path })).toThrow(/is empty/);
  });

  it('takes keys that secrets are sealed with, of 32 bytes, an old one only beside a current one', async () => {
    await using directory = await temporaryDirectory();
    const path = `${directory.path}/key`;
    const key = Buffer.alloc(32, 7);
    await writeFile(path, `${key.toString('base64')}\n`);
    const sealing = (more: Record<string, string>) => loadConfig({ DATABASE_URL, ...more }).sealing;
    expect(sealing({})).toEqual({ current: undefined, old: undefined });
    expect(sealing({ TOKEN_ENCRYPTION_KEY: key.toString('hex') }).current).toEqual(key);
    const both = { TOKEN_ENCRYPTION_KEY: 'ab'.repeat(32), TOKEN_ENCRYPTION_KEY_OLD_FILE: path };
    expect(sealing(both)).toEqual({ current: Buffer.from('ab'.repeat(32), 'hex'), old: key });
    expect(() => sealing({ TOKEN_ENCRYPTION_KEY: 'hunter2' })).toThrow(/^TOKEN_ENCRYPTION_KEY: must be 32 bytes/);
    expect(() => sealing({ TOKEN_ENCRYPTION_KEY_OLD_FILE: path })).toThrow(/^TOKEN_ENCRYPTION_KEY_OLD: goes with/);
    await writeFile(path, '\n');
    expect(() => sealing({ TOKEN_ENCRYPTION_KEY_FILE: path })).toThrow(/is empty/);
  });

  it('refuses to start open, unencrypted or embedded when authentication is required', () => {
    const whole = {
      ORCH_REQUIRE_AUTH: 'true',
      ORCH_AUTH_TOKEN: 'token',
      TOKEN_ENCRYPTION_KEY: 'ab'.repeat(32),
      DATABASE_URL,
    };
    expect(loadConfig(whole).masterToken).toBe('token');
    for (const name of ['ORCH_AUTH_TOKEN', 'TOKEN_ENCRYPTION_KEY', 'DATABASE_URL'])
      expect(() => loadConfig({ ORCH_EMBEDDED_DATABASE: '/var/lib/fuse', ...whole, [name]: '' }), name).toThrow(
        new RegExp(`^ORCH_REQUIRE_AUTH: needs ${name}`),
      );
  });
});
