/** The process inside a namespace of the small internet. Its first message is a ServerOrder, answered by `ready`; `report`, `forget` and a new zone may follow. */
import { z } from 'zod';
import { DnsServer } from './dns-server.ts';
import { WebServers } from './web-servers.ts';
import { NameRecord, ports, ServerOrder, type ServerReport, world } from './world.ts';

const Command = z.union([
  z.object({ order: ServerOrder }),
  z.object({ zone: z.record(z.string(), NameRecord) }),
  z.enum(['report', 'forget']),
]);

const dns = new DnsServer({});
const web = new WebServers();

async function start({ part, zone, tls }: ServerOrder): Promise<void> {
  dns.zone = zone;
  if (part === 'host') {
    for (const address of [world.host, world.host6]) await web.http(address, ports.http, 'host');
    await web.http('127.0.0.1', ports.http, 'host');
    return;
  }
  await dns.listen(world.resolver);
  for (const address of [world.web, world.web6, world.other, world.private, world.carrier, world.unique6]) {
    await web.http(address, ports.http);
    await web.http(address, ports.httpElsewhere);
    await web.tls(address, ports.tls, tls);
    await web.echo(address, ports.echo);
    await web.banner(address, ports.banner);
  }
  for (const address of [world.metadata, world.metadata6]) await web.http(address, ports.http, 'metadata');
}

async function obey(message: unknown): Promise<unknown> {
  const command = Command.parse(message);
  if (command === 'report') {
    const report: ServerReport = { queries: dns.queries, connections: web.connections };
    return report;
  }
  if (command === 'forget') {
    dns.queries = [];
    web.connections = [];
    return 'forgotten';
  }
  if ('zone' in command) {
    dns.zone = command.zone;
    return 'changed';
  }
  await start(command.order);
  return 'ready';
}

process.on('message', (message) => {
  obey(message).then(
    (answer) => process.send?.(answer),
    (error: unknown) => process.send?.({ failed: String(error) }),
  );
});
process.on('disconnect', () => process.exit());
