/** For tests of the HTTP server alone: it knows a master token, and no other credential. */
import { Callers } from './callers.ts';

export const masterAlone = (masterToken: string | undefined): Callers =>
  new Callers({
    masterToken,
    isOpen: true,
    credentials: {
      apiKey: async () => undefined,
      environment: async () => undefined,
      session: async () => undefined,
      hasTenant: async () => false,
      hold: () => ({ [Symbol.dispose]: () => {} }),
    },
  });
