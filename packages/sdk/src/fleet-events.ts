/** Every environment's events on one stream, of the client's tenant; of all tenants for the master without one. */
import { FleetEvent, FleetReset } from '@fuse/contract';
import { FuseError } from './errors.ts';
import { type Identified, resumedEvents } from './resumed-events.ts';
import { type EventsOptions, eventsCall } from './runs.ts';
import type { Transport } from './transport.ts';

/** `reset`: what came before it and after the last event is not told; look at what there is. */
export type FleetStreamEvent = Identified<FleetEvent | FleetReset>;

/** Without an end: from now on, or after `lastEventId`. */
export const fleetEvents = (
  transport: Transport,
  options: EventsOptions = {},
): AsyncGenerator<FleetStreamEvent, void> =>
  resumedEvents<FleetEvent | FleetReset>(
    {
      id: 'all environments',
      connect: (lastEventId, signal) => transport.open(eventsCall('/v1/events', lastEventId, signal)),
      decode,
      isLast: () => false,
    },
    { ...options, random: transport.config.random },
  );

function decode(data: string): FleetEvent | FleetReset {
  try {
    const value: unknown = JSON.parse(data);
    const event = FleetEvent.safeParse(value);
    return event.success ? event.data : FleetReset.parse(value);
  } catch (cause) {
    throw new FuseError('decode event: not an event of an environment', { cause });
  }
}
