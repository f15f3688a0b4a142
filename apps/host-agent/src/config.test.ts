import { mkdtempSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadConfig } from './config.ts';

const token = 'a-token-that-is-long-enough';
const base = { FUSE_HOME: '/var/lib/fuse', FUSE_HOST_TOKEN: token };

describe('loadConfig', () => {
  it('has a default for all but the token', () => {
    const config = loadConfig(base);
    expect(config).toMatchObject({
      listen: { host: '127.0.0.1', port: 8090 },
      token,
      assetsManifestPath: '/var/lib/fuse/assets/manifest.json',
      dataDirectory: '/var/lib/fuse/host',
      capacity: { maxVms: 249, storageGb: undefined },
      objectStore: { kind: 'file', directory: '/var/lib/fuse/objects' },
      logLevel: 'info',
    });
    expect(config.capacity.cpus).toBeGreaterThanOrEqual(4);
    expect(config.capacity.ramMb).toBeGreaterThan(0);
  });

  it('takes what is given', () => {
    const config = loadConfig({
      ...base,
      FUSE_HOST_LISTEN: '[::1]:9000',
      FUSE_HOST_CPUS: '16',
      FUSE_HOST_RAM_MB: '32768',
      FUSE_HOST_STORAGE_GB: '500',
      FUSE_HOST_MAX_VMS: '20',
      FUSE_LOG_LEVEL: 'debug',
    });
    expect(config.listen).toEqual({ host: '::1', port: 9000 });
    expect(config.capacity).toEqual({ cpus: 16, ramMb: 32_768, storageGb: 500, maxVms: 20 });
  });

  it('takes empty variables as absent', () => {
    expect(loadConfig({ ...base, FUSE_HOST_CPUS: '', FUSE_HOST_TOKEN_FILE: '' }).token).toBe(token);
  });

  it('reads the token from a file', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'fuse-config-'));
    const path = join(directory, 'token');
    writeFileSync(path, `${token}\n`);
    expect(loadConfig({ FUSE_HOST_TOKEN_FILE: path }).token).toBe(token);
    writeFileSync(path, 'short');
    expect(() => loadConfig({ FUSE_HOST_TOKEN_FILE: path })).toThrow(/under 16 characters/);
    expect(() => loadConfig({ FUSE_HOST_TOKEN_FILE: join(directory, 'none') })).toThrow(/cannot be read/);
    await rm(directory, { recursive: true });
  });

  it('joins a fleet with a token of its own', () => {
    const config = loadConfig({
      FUSE_JOIN_URL: 'https://fuse.example.com',
      FUSE_JOIN_TOKEN: 'fuse_join_0123456789',
      FUSE_ADVERTISE_URL: 'https://10.0.0.2:8090',
      FUSE_HOST_ID: 'rack-7',
      FUSE_HOST_LABELS: 'disk=fast,zone=a',
    });
    expect(config.token).toBeUndefined();
    expect(config.join).toMatchObject({
      url: 'https://fuse.example.com',
      token: 'fuse_join_0123456789',
      id: 'rack-7',
      advertiseUrl: 'https://10.0.0.2:8090',
      labels: { disk: 'fast', zone: 'a' },
    });
  });

  it.each([
    ['FUSE_HOST_TOKEN', { FUSE_HOST_TOKEN: undefined }],
    ['FUSE_HOST_TOKEN', { FUSE_HOST_TOKEN_FILE: '/x' }],
    ['FUSE_HOST_TOKEN', { FUSE_HOST_TOKEN: 'short' }],
    ['FUSE_HOST_LISTEN', { FUSE_HOST_LISTEN: '8090' }],
    ['FUSE_HOST_LISTEN', { FUSE_HOST_LISTEN: 'localhost:99999' }],
    ['FUSE_HOST_CPUS', { FUSE_HOST_CPUS: '-1' }],
    ['FUSE_HOST_RAM_MB', { FUSE_HOST_RAM_MB: 'many' }],
    ['FUSE_HOST_TLS_CERT', { FUSE_HOST_TLS_CERT: '/x' }],
    ['FUSE_HOST_TLS_CLIENT_CA', { FUSE_HOST_TLS_CLIENT_CA: '/x' }],
    ['FUSE_ADVERTISE_URL', { FUSE_JOIN_URL: 'http://10.0.0.1:8080' }],
    ['FUSE_JOIN_URL', { FUSE_JOIN_URL: 'ftp://10.0.0.1', FUSE_ADVERTISE_URL: 'http://10.0.0.2' }],
    ['FUSE_JOIN_TOKEN', { FUSE_JOIN_TOKEN: 'short' }],
    ['FUSE_HOST_LABELS', { FUSE_HOST_LABELS: 'disk' }],
    ['FUSE_CONFINEMENT', { FUSE_CONFINEMENT: 'perhaps' }],
    ['FUSE_VMM_UID_BASE', { FUSE_VMM_UID_BASE: '500' }],
    ['FUSE_VM_DISK_MBPS', { FUSE_VM_DISK_MBPS: '0' }],
    ['FUSE_HOME', { FUSE_HOME: 'relative' }],
    ['FUSE_LOG_LEVEL', { FUSE_LOG_LEVEL: 'loud' }],
    ['S3_ACCESS_KEY_ID', { S3_BUCKET: 'outputs' }],
  ])('names %s when it is wrong, and never its value', (name, change) => {
    let message = '';
    try {
      loadConfig({ ...base, ...change });
    } catch (error) {
      message = String(error);
    }
    expect(message).toContain(name);
    expect(message).not.toContain(token);
  });
});
