/** Networks as people read them. Names are the guest's: nothing in them reaches the terminal as a control character. */
import { ruleText } from '@fuse/contract';
import type { EnvironmentEvent, EnvironmentNetwork, NetworkPolicy } from '@fuse/sdk';
import { formatBytes, printable, properties } from './format.ts';

type Connection = EnvironmentNetwork['connections'][number];
type Refusal = NonNullable<EnvironmentEvent['network']>;

export function policyText({ egress, allow, deny }: NetworkPolicy): string {
  const rules = (what: string, of: NetworkPolicy['allow']) =>
    of.length === 0 ? [] : [`${what} ${of.map(ruleText).join(' ')}`];
  return [egress, ...rules('allow', allow), ...rules('deny', deny)].join('; ');
}

export const networkText = (network: EnvironmentNetwork): string =>
  properties({
    policy: policyText(network.policy),
    'tenant max': network.tenant_max && policyText(network.tenant_max),
    'deployment max': network.deployment_max && policyText(network.deployment_max),
    sent: formatBytes(network.sent_bytes),
    received: formatBytes(network.received_bytes),
    allowed: String(network.allowed_count),
    refused: String(network.refused_count),
  });

export const connectionHeadings = [
  'TIME',
  'VERDICT',
  'NAME',
  'ADDRESS',
  'PORT',
  'PROTOCOL',
  'SENT',
  'RECEIVED',
  'COUNT',
  'REASON',
] as const;

export const connectionRow = (connection: Connection): string[] => [
  connection.at,
  connection.verdict === 'allowed' && connection.protocol !== 'dns' && connection.duration_ms === undefined
    ? 'open'
    : connection.verdict,
  connection.name ?? '',
  connection.address ?? '',
  connection.port === undefined ? '' : String(connection.port),
  connection.protocol,
  connection.protocol === 'dns' ? '' : formatBytes(connection.sent_bytes),
  connection.protocol === 'dns' ? '' : formatBytes(connection.received_bytes),
  String(connection.count),
  reasonText(connection),
];

const reasonText = ({ reason, detail }: Pick<Connection, 'reason' | 'detail'>): string =>
  [reason, detail].filter((part) => part !== undefined).join(': ');

/** Whether a refusal that is told was in the report already: hosts report some seconds late. */
export const isListed = (refusal: Refusal, connections: readonly Connection[]): boolean =>
  connections.some(
    (each) =>
      each.verdict === 'refused' &&
      each.count >= refusal.count &&
      identifying.every((key) => each[key] === refusal[key]),
  );

/** The time is that of the first of equal ones. */
const identifying = ['at', 'name', 'address', 'port', 'protocol', 'reason'] as const;

/** Without its time. */
export function refusalText(refusal: Refusal): string {
  const { name, address, port, protocol, count, missed = 0 } = refusal;
  const target = [name ?? address ?? '', port === undefined ? '' : `:${port}`].join('');
  return [
    `refused ${target}`,
    protocol,
    name === undefined || address === undefined ? '' : address,
    reasonText(refusal),
    count === 1 ? '' : `${count} times`,
    missed === 0 ? '' : `${missed} before it are not told`,
  ]
    .filter((part) => part !== '')
    .map(printable)
    .join('  ');
}
