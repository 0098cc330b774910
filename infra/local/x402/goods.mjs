// The goods of the local providers: one list from which both providers take their paths, prices and responses.
//
// Prices are whole micro-USDC as decimal text, and responses are always the same, so a test can compare them.
// provider-v2.mjs and provider-v1.mjs require and accept the payments.

/** How long a payment may take, and so how long its authorization is valid. */
export const MAX_TIMEOUT_SECONDS = 300;

/** A price in the path. The largest uint256 has 78 digits; larger prices can be requested but not paid. */
export const UNITS = /^[1-9][0-9]{0,77}$/;

export const WEATHER = {
  method: 'GET',
  path: '/weather',
  units: '10000',
  description: 'Current weather in Lisbon',
  answer: () => ({ city: 'Lisbon', temperature_c: 19.5, humidity_percent: 64, conditions: 'partly cloudy' }),
};

/**
 * An operation whose price is in its path. `units` is absent because each provider reads the price from its own kind of
 * request.
 */
export const PRICE = {
  method: 'GET',
  path: '/price/:units',
  description: 'A receipt for any amount you name',
  answer: ({ params }) => ({ charged_units: params.units, currency: 'USDC' }),
};

export const GOODS = [
  WEATHER,
  {
    method: 'GET',
    path: '/search',
    units: '5000',
    description: 'Web search results',
    answer: ({ query }) => ({
      query: query.q ?? '',
      results: [
        { title: 'HTTP 402 Payment Required', url: 'https://example.com/http-402' },
        { title: 'Transfer with authorization', url: 'https://example.com/eip-3009' },
      ],
    }),
  },
  {
    method: 'GET',
    path: '/scrape',
    units: '20000',
    description: 'The readable text of a page',
    answer: ({ query }) => ({
      url: query.url ?? '',
      status: 200,
      title: 'Example Domain',
      text: 'This domain is for use in illustrative examples in documents.',
    }),
  },
  {
    method: 'POST',
    path: '/report',
    units: '250000',
    description: 'A market report on the topic in the body',
    takesIdentifier: true,
    answer: ({ body }) => ({
      topic: body?.topic ?? 'general',
      summary: 'Demand is steady and supply is growing.',
      sections: ['overview', 'demand', 'supply', 'outlook'],
    }),
  },
  {
    method: 'GET',
    path: '/premium',
    units: '12000000',
    description: 'The full dataset',
    answer: () => ({ dataset: 'shipping-lanes', rows: 48210, download_url: 'https://example.com/shipping-lanes.parquet' }),
  },
  PRICE,
];
