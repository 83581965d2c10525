// What all pages know about where they are: who leads, whether this coordinator lets anything be changed.
import { createContext } from 'preact';
import { useContext } from 'preact/hooks';
import type { Leader } from './api';

export interface Session {
  leader: Leader | undefined;
  canWrite: boolean;
  whyNot: string | undefined; // for those who hover over what they cannot press
}

export const SessionContext = createContext<Session>({ leader: undefined, canWrite: false, whyNot: undefined });
export const useSession = () => useContext(SessionContext);

export function sessionOf(leader: Leader | undefined): Session {
  const role = leader?.role;
  if (role === 'observer') return { leader, canWrite: false, whyNot: 'this is an observer: it only looks' };
  if (role === 'standby') return { leader, canWrite: false, whyNot: 'this coordinator stands by: ask the one that leads' };
  return { leader, canWrite: true, whyNot: undefined };
}
