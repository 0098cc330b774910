// An agent of the AI SDK with a tool that pays for its call.
//
// PURSER_URL and PURSER_KEY are Purser's address and the agent key. WEATHER_URL is a provider that asks for a payment.

import { generateText, type LanguageModel, stepCountIs, tool } from 'ai';
import { Purser, PurserError, wrapFetch } from 'purser-client';
import { z } from 'zod';

const env = process.env as Record<'WEATHER_URL' | 'MODEL' | 'RUN', string>;

// The run is the job that the agent works on: repeated under the same id, it pays nothing twice.
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

/** Returns the agent's answer. */
export async function ask(model: LanguageModel, prompt: string): Promise<string> {
  // A step calls the tool, and the next one answers.
  const { text } = await generateText({ model, prompt, tools: { currentWeather }, stopWhen: stepCountIs(5) });
  return text;
}

if (env.MODEL) console.log(await ask(env.MODEL, 'How is the weather in Lisbon?'));
