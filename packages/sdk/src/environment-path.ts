export const environmentPath = (id: string): string => `/v1/environments/${encodeURIComponent(id)}`;
