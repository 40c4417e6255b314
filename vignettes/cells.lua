-- Cells of a notebook: folds code tagged `fold`, leaves out code tagged `hide`, puts code tagged
-- `beside` next to the R code above it, aligns tables tagged `text` to the left, and gives figures
-- their alternative text.

local function tagged(cell, tag)
  local tags = cell.attributes["tags"] or ""
  return tags:find('"' .. tag .. '"', 1, true) ~= nil
end

local function is_code(block, language)
  return block.t == "CodeBlock" and block.classes:includes(language)
end

local function code_cell(cell, before)
  local alt = cell.attributes["alt"]
  local out = pandoc.List()
  for _, block in ipairs(cell.content) do
    if not is_code(block, "python") then
      out:insert(block)
    elseif tagged(cell, "fold") then
      out:insert(pandoc.RawBlock("html", "<details><summary>Code</summary>"))
      out:insert(block)
      out:insert(pandoc.RawBlock("html", "</details>"))
    elseif tagged(cell, "beside") and #before > 0 and is_code(before[#before], "r") then
      out:insert(pandoc.Div({ before:remove(), block }, { class = "beside" }))
    elseif not tagged(cell, "hide") then
      out:insert(block)
    end
  end
  return pandoc.Div(out, { class = tagged(cell, "text") and "cell text" or "cell" }):walk({
    Image = function(image)
      if alt then
        image.caption = pandoc.Inlines(alt:gsub('^"(.*)"$', "%1"))
      end
      return image
    end,
  })
end

function Pandoc(doc)
  local blocks = pandoc.List()
  for _, block in ipairs(doc.blocks) do
    if block.t ~= "Div" then
      if block.t == "Header" then
        block.level = math.max(block.level, 2) -- the title of the references is made at level 1
      end
      blocks:insert(block)
    elseif block.classes:includes("code") then
      blocks:insert(code_cell(block, blocks))
    elseif block.classes:includes("markdown") then
      blocks:extend(block.content) -- in a block of their own, headings would miss the contents
    else
      blocks:insert(block)
    end
  end
  doc.blocks = blocks
  return doc
end
