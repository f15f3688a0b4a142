import { describe, expect, it } from 'vitest';
import { loadConfig } from '../config.ts';

const networkOf = (variables: Record<string, string>) =>
  loadConfig({ FUSE_HOST_TOKEN: 'a-token-that-is-long-enough', ...variables }).network;

describe('settings of the network', () => {
  it('have defaults', () => {
    expect(networkOf({})).toEqual({
      poolSize: 4,
      egressNamespace: undefined,
      resolvers: undefined,
      privateAllow: [],
      vmBytesPerSecond: undefined,
      gatewayMemoryMiB: 1_024,
    });
  });

  it('are read as they are written', () => {
    const network = networkOf({
      FUSE_NETWORK_POOL: '0',
      FUSE_EGRESS_NETNS: 'uplink-1',
      FUSE_DNS_SERVERS: '192.0.2.53, 192.0.2.54:5353,2001:db8::53,[2001:db8::54]:53',
      FUSE_EGRESS_PRIVATE: '10.1.0.0/16, fd00::/64',
      FUSE_VM_NETWORK_MBPS: '5',
      FUSE_GATEWAY_RAM_MB: '256',
    });
    expect(network).toEqual({
      poolSize: 0,
      egressNamespace: 'uplink-1',
      resolvers: ['192.0.2.53:53', '192.0.2.54:5353', '[2001:db8::53]:53', '[2001:db8::54]:53'],
      privateAllow: ['10.1.0.0/16', 'fd00::/64'],
      vmBytesPerSecond: 5_000_000,
      gatewayMemoryMiB: 256,
    });
  });

  it.each([
    ['FUSE_NETWORK_POOL', '65'],
    ['FUSE_NETWORK_POOL', '-1'],
    ['FUSE_EGRESS_NETNS', '../etc'],
    ['FUSE_DNS_SERVERS', 'dns.example.org'],
    ['FUSE_DNS_SERVERS', '192.0.2.53:0'],
    ['FUSE_DNS_SERVERS', '192.0.2.53,'],
    ['FUSE_EGRESS_PRIVATE', '10.1.0.0'],
    ['FUSE_EGRESS_PRIVATE', '10.1.0.0/33'],
    ['FUSE_VM_NETWORK_MBPS', '0'],
    ['FUSE_GATEWAY_RAM_MB', '63'],
  ])('%s=%s is refused, by its name', (name, value) => {
    expect(() => networkOf({ [name]: value })).toThrow(name);
  });
});
