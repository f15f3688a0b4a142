/** An authoritative name server that remembers every question. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import packet, { type Answer, type DecodedPacket } from 'dns-packet';
import type { NameRecord, SeenQuery, Zone } from './world.ts';

const DNS_PORT = 53;
const DEFAULT_TTL_SECONDS = 30;

export class DnsServer {
  zone: Zone;
  queries: SeenQuery[] = [];
  readonly #turns = new Map<string, number>();

  constructor(zone: Zone) {
    this.zone = zone;
  }

  async listen(address: string): Promise<void> {
    const udp = createSocket('udp4');
    udp.on('message', (message, from) => {
      void this.#answer(message, { transport: 'udp', from: from.address }).then((answer) => {
        if (answer !== undefined) udp.send(packet.encode(answer), from.port, from.address);
      });
    });
    udp.bind(DNS_PORT, address);
    const tcp = createServer((socket) => {
      socket.on('error', () => {});
      let unread = Buffer.alloc(0);
      socket.on('data', (chunk: Buffer) => {
        unread = Buffer.concat([unread, chunk]);
        for (let size = sizeOf(unread); unread.length >= size; size = sizeOf(unread)) {
          const message = unread.subarray(2, size);
          unread = unread.subarray(size);
          void this.#answer(message, { transport: 'tcp', from: socket.remoteAddress ?? '' }).then((answer) => {
            if (answer !== undefined) socket.write(packet.streamEncode(answer));
          });
        }
      });
    });
    tcp.listen(DNS_PORT, address);
    await Promise.all([once(udp, 'listening'), once(tcp, 'listening')]);
  }

  async #answer(message: Buffer, via: Pick<SeenQuery, 'transport' | 'from'>): Promise<packet.Packet | undefined> {
    let query: DecodedPacket;
    try {
      query = packet.decode(message);
    } catch {
      return undefined;
    }
    const question = query.questions?.[0];
    if (question === undefined) return undefined;
    const name = question.name.toLowerCase();
    this.queries.push({ name, type: question.type, ...via });
    const record = this.zone[name];
    const answers = record === undefined ? [] : this.#records(name, record, question.type);
    if (record?.delayMs !== undefined) await delay(record.delayMs);
    const rcode = record === undefined ? 3 : 0; // NXDOMAIN
    return {
      type: 'response',
      ...(query.id === undefined ? {} : { id: query.id }),
      flags: packet.AUTHORITATIVE_ANSWER | packet.RECURSION_AVAILABLE | packet.RECURSION_DESIRED | rcode,
      questions: [question],
      answers,
    };
  }

  #records(name: string, record: NameRecord, type: string): Answer[] {
    const ttl = record.ttl ?? DEFAULT_TTL_SECONDS;
    if (record.cname !== undefined) {
      const target = this.zone[record.cname];
      const alias: Answer = { type: 'CNAME', name, ttl, data: record.cname };
      return [alias, ...(target === undefined ? [] : this.#records(record.cname, target, type))];
    }
    if (type === 'AAAA') return (record.aaaa ?? []).map((data) => ({ type: 'AAAA', name, ttl, data }));
    if (type !== 'A') return [];
    return (record.turns === undefined ? (record.a ?? []) : this.#nextTurn(name, record.turns)).map((data) => ({
      type: 'A',
      name,
      ttl,
      data,
    }));
  }

  #nextTurn(name: string, turns: string[][]): string[] {
    const turn = this.#turns.get(name) ?? 0;
    this.#turns.set(name, turn + 1);
    return turns[Math.min(turn, turns.length - 1)] ?? [];
  }
}

/** Of the message that begins there, its length field included; more than there is while that is not whole. */
const sizeOf = (bytes: Buffer): number => (bytes.length < 2 ? Number.POSITIVE_INFINITY : bytes.readUInt16BE(0) + 2);
