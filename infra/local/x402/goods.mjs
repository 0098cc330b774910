// The goods of the local merchant: one list from which both providers take their paths, prices and answers.
//
// Prices are whole micro-USDC in decimal text, and answers are the same on every run, so a test may compare them whole.
// Deliberately elsewhere: how payment is asked for and taken (provider-v2.mjs, provider-v1.mjs).

/** How long a payment offered here may take, and so how long its authorization lives. */
export const MAX_TIMEOUT_SECONDS = 300;

/** A price taken from the path. The largest uint256 has 78 digits; a little more than fits may be asked, and not be paid. */
export const UNITS = /^[1-9][0-9]{0,77}$/;

export const WEATHER = {
  method: 'GET',
  path: '/weather',
  units: '10000',
  description: 'Current weather in Lisbon',
  answer: () => ({ city: 'Lisbon', temperature_c: 19.5, humidity_percent: 64, conditions: 'partly cloudy' }),
};

/** Costs what its path says; `units` is absent because each provider reads it from its own kind of request. */
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
