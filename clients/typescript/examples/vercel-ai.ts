// An agent with the AI SDK that has a tool that pays for a call.
//
// PURSER_URL and PURSER_KEY are Purser's URL and the agent key. WEATHER_URL is the URL of a provider that requires a
// payment.

import { generateText, type LanguageModel, stepCountIs, tool } from 'ai';
import { Purser, PurserError, wrapFetch } from 'purser-client';
import { z } from 'zod';

const env = process.env as Record<'WEATHER_URL' | 'MODEL' | 'RUN', string>;

// `run` is the id of the agent's job. A job that is repeated with the same id pays for no call twice.
const pay = wrapFetch(fetch, new Purser({ run: env.RUN, maxAmount: '0.05' }));

const currentWeather = tool({
  description: 'Returns the current weather in Lisbon. A call costs one cent.',
  inputSchema: z.object({}),
  execute: async () => {
    try {
      return await (await pay(env.WEATHER_URL)).text();
    } catch (error) {
      if (!(error instanceof PurserError)) throw error;
      return `The call failed. ${error.todo}`;
    }
  },
});

/** Returns the agent's response. */
export async function ask(model: LanguageModel, prompt: string): Promise<string> {
  // The first step calls the tool, and the second step responds.
  const { text } = await generateText({ model, prompt, tools: { currentWeather }, stopWhen: stepCountIs(5) });
  return text;
}

if (env.MODEL) console.log(await ask(env.MODEL, 'How is the weather in Lisbon?'));
