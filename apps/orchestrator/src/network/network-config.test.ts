import { describe, expect, it } from 'vitest';
import { ConfigError, loadConfig } from '../config.ts';

const load = (variables: Record<string, string>) =>
  loadConfig({ ORCH_EMBEDDED_DATABASE: '/tmp/none', FUSE_OBJECTS_DIR: '/tmp/none', ...variables }).network;

describe('a deployment’s networks', () => {
  it('are none without a maximum, levels, or policies as JSON', () => {
    expect(load({})).toEqual({ default: { egress: 'none', allow: [], deny: [] }, max: undefined });
    expect(
      load({ FUSE_DEFAULT_NETWORK: 'internet', FUSE_MAX_NETWORK: '{"egress":"internet","deny":["*.example.com"]}' }),
    ).toMatchObject({ default: { egress: 'internet' }, max: { deny: [{ host: '*.example.com' }] } });
  });

  it.each([
    ['FUSE_DEFAULT_NETWORK', 'open', /none, allowlist, internet, or a policy as JSON/],
    ['FUSE_MAX_NETWORK', '{"egress":', /policy as JSON/],
    [
      'FUSE_MAX_NETWORK',
      '{"egress":"allowlist","allow":["203.0.113.5/24"]}',
      /allow\.0: .*beyond its prefix .*203\.0\.113\.0\/24/,
    ],
  ])('%s=%s says what is wrong', (name, text, problem) => {
    expect(() => load({ [name]: text })).toThrow(ConfigError);
    expect(() => load({ [name]: text })).toThrow(problem);
    expect(() => load({ [name]: text })).toThrow(name);
  });

  it('the default is within the maximum', () => {
    expect(() => load({ FUSE_DEFAULT_NETWORK: 'internet', FUSE_MAX_NETWORK: 'allowlist' })).toThrow(
      'FUSE_DEFAULT_NETWORK: is more than FUSE_MAX_NETWORK: "internet" is more than egress "allowlist"',
    );
  });
});
