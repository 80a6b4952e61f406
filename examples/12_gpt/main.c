/* SPDX-License-Identifier: MIT */
/* Train a small GPT on the King James text with a sharded optimizer, and let it write. */
#include "train.h"

int main(int argc, char **argv)
{
    task job;
    options_parse(&job.options, argc, argv);
    CZ_CHECK(text_read(&job.text, job.options.text, job.options.text_bytes,
                       job.options.model.block_size));
    gpt_setup();
    cz_launch_options launch = CZ_LAUNCH_OPTIONS_INIT;
    launch.ranks = job.options.ranks;
    CZ_CHECK(cz_launch(train, &job, &launch));
    text_free(&job.text);
    return 0;
}
